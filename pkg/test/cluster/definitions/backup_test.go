// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/cmd"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// restored: a resource whose CRD was deleted in the main cluster is restored through the
// main cluster.
func restored(f *fixture) {
	name := "widgets." + f.group
	definition := hosted(f.newCRD("widgets", "v1"))
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema.XPreserveUnknownFields = new(true)
	f.createInMain(definition)
	f.waitPublished("v1")
	f.waitForSync(name)
	f.createObject("widgets", "v1", "one")
	before, err := f.objects(f.mainObjects, "widgets", "v1").Get(f.Context(), "one", metav1.GetOptions{})
	expect.NoError(f, err)
	// Larger than etcd's limit in the main cluster, also when compressed.
	random := make([]byte, 3<<20)
	_, err = rand.Read(random)
	expect.NoError(f, err)
	large := f.newObject("widgets", "v1", "large")
	large.Object["data"] = hex.EncodeToString(random)
	_, err = f.objects(f.mainObjects, "widgets", "v1").Create(f.Context(), large, metav1.CreateOptions{})
	expect.NoError(f, err)
	file := filepath.Join(f.TempDir(), "widgets.backup")
	f.runCommand("backup", "--resource="+name, file)

	expect.Delete(f, f.mainCRDs, name)
	f.waitForDeletionInMain(name)
	f.waitForDeletion("widgets")
	f.runCommand("restore", file)
	f.waitPublished("v1")
	f.waitForSync(name)
	f.expectInMainEtcd(0)
	after, err := f.objects(f.mainObjects, "widgets", "v1").Get(f.Context(), "large", metav1.GetOptions{})
	expect.NoError(f, err)
	if after.Object["data"] != large.Object["data"] {
		f.Error("the large object has changed")
	}
	poll.UntilDone(f, "the object has its UID and a new resource version", func() (bool, string) {
		after, err := f.objects(f.mainObjects, "widgets", "v1").Get(f.Context(), "one", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		same := after.GetUID() == before.GetUID() && after.GetResourceVersion() != before.GetResourceVersion()
		return same, fmt.Sprint(after.Object)
	})
}

// runCommand runs a command of annex with the kubeconfig of the main cluster.
func (f *fixture) runCommand(args ...string) {
	f.Helper()
	var out, errOut bytes.Buffer
	if code := cmd.Execute(append(args, "--kubeconfig="+mainCluster.Kubeconfig), &out, &errOut); code != 0 {
		f.Fatalf("annex %s: exit code %d: %s", strings.Join(args, " "), code, errOut.String())
	}
}
