// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/cmd"
)

// restored: a resource whose definition was deleted in the main cluster is brought
// back by somebody who knows only the main cluster.
func restored(w *fixture) {
	name := "widgets." + w.group
	definition := hosted(w.crd("widgets", "v1"))
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema.XPreserveUnknownFields = new(true)
	w.define(definition)
	w.published("v1")
	w.followed(name)
	w.create("widgets", "v1", "one")
	before, err := w.in(w.mainObjects, "widgets", "v1").Get(w.Context(), "one", metav1.GetOptions{})
	w.no(err)
	// More than the main cluster's own kinds may have, and than compression makes small.
	random := make([]byte, 3<<20)
	_, err = rand.Read(random)
	w.no(err)
	large := w.object("widgets", "v1", "large")
	large.Object["data"] = hex.EncodeToString(random)
	_, err = w.in(w.mainObjects, "widgets", "v1").Create(w.Context(), large, metav1.CreateOptions{})
	w.no(err)
	file := filepath.Join(w.TempDir(), "widgets.backup")
	w.run("backup", "--resource="+name, file)

	w.deleteInMain(name)
	w.goneFromMain(name)
	w.isGone("widgets")
	w.run("restore", file)
	w.published("v1")
	w.followed(name)
	w.stored(0)
	after, err := w.in(w.mainObjects, "widgets", "v1").Get(w.Context(), "large", metav1.GetOptions{})
	w.no(err)
	if after.Object["data"] != large.Object["data"] {
		w.Error("the large object is another one")
	}
	w.eventually("the object is there as it was", func(ctx context.Context) (bool, string) {
		after, err := w.in(w.mainObjects, "widgets", "v1").Get(ctx, "one", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		same := after.GetUID() == before.GetUID() && after.GetResourceVersion() != before.GetResourceVersion()
		return same, fmt.Sprint(after.Object)
	})
}

// run runs a command of annex as somebody who knows only the main cluster.
func (w *fixture) run(args ...string) {
	w.Helper()
	var out, errOut bytes.Buffer
	if code := cmd.Execute(append(args, "--kubeconfig="+mainCluster.Kubeconfig), &out, &errOut); code != 0 {
		w.Fatalf("annex %s: exit code %d: %s", strings.Join(args, " "), code, errOut.String())
	}
}
