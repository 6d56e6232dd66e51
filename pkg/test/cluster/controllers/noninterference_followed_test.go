// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// testSyncedCRD: a takeover does not change the main cluster's documents of a CRD.
func testSyncedCRD(t *testing.T, s *sharedAnnex) {
	mainClients := main(t)
	w := newMainWidgets(t, s)
	document := "/openapi/v3/apis/" + w.group + "/v1"
	before, pathsBefore := mainClients.get(t, document), pathsOf(mainClients.documents(t), w.group)

	s.takeOver(t, w)
	w.create(t, "one")
	if keys, err := mainCluster.EtcdKeys(t.Context(), "/registry/"+w.group+"/"); err != nil || len(keys) > 0 {
		t.Errorf("the main cluster stores %v: %v", keys, err)
	}
	poll.Until(t, "the main cluster serves annex's discovery of it", func() string { return isDiscovered(t, mainClients, w.group, 1) })
	if after := mainClients.readRepeatedly(t, document); !bytes.Equal(before.Body, after.Body) {
		t.Errorf("the v3 document changed from\n%s\nto\n%s", before.Body, after.Body)
	}
	now := mainClients.documents(t)
	if diff := cmp.Diff(pathsBefore, pathsOf(now, w.group)); diff != "" {
		t.Errorf("the v2 paths changed (-before +after):\n%s", diff)
	}
	checkUnchanged(t, s.before, now)
	if s.own(t).documents(t).index["apis/"+w.group+"/v1"] == "" {
		t.Error("annex's own document lacks it")
	}
	if printed, err := kubectl(t, "", "explain", "widgets.spec.color", "--api-version="+w.group+"/v1"); err != nil || !strings.Contains(printed, "The color of the paint.") {
		t.Errorf("explain: %v\n%s", err, printed)
	}
}

// newMainWidgets creates the CRD of Widgets in the main cluster, ready for a takeover.
func newMainWidgets(t *testing.T, s *sharedAnnex) widgets {
	t.Helper()
	w := widgets{group: newGroup(), namespace: newNamespace(t)}
	expect.NoError(t, s.installation.AllowGroup(t.Context(), w.group))
	mainClients := main(t)
	mainClients.define(t, newCRD(t, w.group, "widgets", "Widget"))
	poll.UntilDone(t, "the main cluster documents "+w.group, func() (bool, string) {
		now := mainClients.documents(t)
		return now.index["apis/"+w.group+"/v1"] != "" && now.paths["/apis/"+w.group+"/v1/widgets"] != nil, "not yet"
	})
	return w
}

// takeOver labels the CRD and waits until annex serves its objects.
func (s *sharedAnnex) takeOver(t *testing.T, w widgets) {
	t.Helper()
	definitions := main(t).CRDs()
	poll.UntilNoError(t, "the CRD is labelled", func() error {
		definition, err := definitions.Get(t.Context(), "widgets."+w.group, metav1.GetOptions{})
		if err != nil {
			return err
		}
		definition.Labels = map[string]string{hostingv1alpha1.HostedLabel: "true"}
		_, err = definitions.Update(t.Context(), definition, metav1.UpdateOptions{})
		return err
	})
	own := s.own(t)
	poll.Until(t, "annex has taken over the CRD", func() string {
		got := own.get(t, "/apis/hosting.annex.dev/v1alpha1/hostedresources/widgets."+w.group)
		var resource hostingv1alpha1.HostedResource
		if err := json.Unmarshal(got.Body, &resource); err != nil {
			return got.String()
		}
		for _, condition := range []string{hostingv1alpha1.HostedResourceDefinitionSynced, hostingv1alpha1.HostedResourcePublished} {
			if !meta.IsStatusConditionTrue(resource.Status.Conditions, condition) {
				return fmt.Sprintf("%+v", resource.Status.Conditions)
			}
		}
		return ""
	})
	expect.NoError(t, s.installation.WaitPublished(t.Context(), w.group, "v1"))
}

// pathsOf returns the v2 paths of a group.
func pathsOf(d documents, group string) map[string]string {
	found := map[string]string{}
	for path, content := range d.paths {
		if strings.HasPrefix(path, "/apis/"+group+"/") {
			found[path] = string(content)
		}
	}
	return found
}
