// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package citizen

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// TestFollowedDefinition: the documents of a definition in the main cluster are not
// touched when annex takes it over: the main cluster goes on describing it.
func TestFollowedDefinition(t *testing.T) {
	t.Parallel()
	s := running(t)
	mainClients := main(t)
	w := widgets{group: newGroup(), namespace: newNamespace(t)}
	if err := s.installation.AllowGroup(t.Context(), w.group); err != nil {
		t.Fatal(err)
	}
	mainClients.define(t, newDefinition(t, w.group, "widgets", "Widget"))
	document := "/openapi/v3/apis/" + w.group + "/v1"
	var before answer
	eventually(t, "the main cluster describes its definition", func() string {
		now := mainClients.documents(t)
		if before = mainClients.get(t, document); before.code != http.StatusOK || now.index["apis/"+w.group+"/v1"] == "" || now.paths["/apis/"+w.group+"/v1/widgets"] == nil {
			return before.String()
		}
		return ""
	})
	pathsBefore := pathsOf(mainClients.documents(t), w.group)

	definitions := mainClients.extensions.ApiextensionsV1().CustomResourceDefinitions()
	eventually(t, "the definition is labelled", func() string {
		definition, err := definitions.Get(t.Context(), "widgets."+w.group, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		definition.Labels = map[string]string{hostingv1alpha1.HostedLabel: "true"}
		if _, err := definitions.Update(t.Context(), definition, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	if err := s.installation.WaitPublished(t.Context(), w.group, "v1"); err != nil {
		t.Fatal(err)
	}
	w.waitReachable(t)
	w.create(t, "one")
	if keys, err := mainCluster.EtcdKeys(t.Context(), "/registry/"+w.group+"/"); err != nil || len(keys) > 0 {
		t.Errorf("the main cluster itself stores %v: %v", keys, err)
	}
	eventually(t, "the main cluster has annex's discovery of it", func() string { return freshness(t, mainClients, w.group, "Current") })
	after := mainClients.readRepeatedly(t, document)
	if !bytes.Equal(before.body, after.body) {
		t.Errorf("the v3 document changed from\n%s\nto\n%s", before.body, after.body)
	}
	now := mainClients.documents(t)
	if got := pathsOf(now, w.group); !slices.Equal(got, pathsBefore) {
		t.Errorf("the v2 paths changed from %v to %v", pathsBefore, got)
	}
	checkUnhurt(t, s.before, now)

	if s.own(t).documents(t).index["apis/"+w.group+"/v1"] == "" {
		t.Error("annex's own endpoint does not describe it")
	}
	if printed, err := kubectl(t, "", "explain", "widgets.spec.color", "--api-version="+w.group+"/v1"); err != nil || !strings.Contains(printed, "The color of the paint.") {
		t.Errorf("explain: %v\n%s", err, printed)
	}
	if _, err := w.by(mainClients).Create(t.Context(), w.object("one"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("creating it again: %v", err)
	}
}

func pathsOf(d documents, group string) []string {
	var found []string
	for path := range d.paths {
		if strings.HasPrefix(path, "/apis/"+group+"/") {
			found = append(found, path)
		}
	}
	slices.Sort(found)
	return found
}
