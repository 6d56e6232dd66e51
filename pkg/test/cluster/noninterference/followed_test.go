// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package noninterference

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

// TestFollowedDefinition: the documents of a definition in the main cluster are not
// touched when annex takes it over: the main cluster goes on describing it.
func TestFollowedDefinition(t *testing.T) {
	t.Parallel()
	s := running(t)
	mainClients := main(t)
	w := newDefinedWidgets(t, s)
	document := "/openapi/v3/apis/" + w.group + "/v1"
	before, pathsBefore := mainClients.get(t, document), pathsOf(mainClients.documents(t), w.group)

	s.takeOver(t, w)
	w.create(t, "one")
	if keys, err := mainCluster.EtcdKeys(t.Context(), "/registry/"+w.group+"/"); err != nil || len(keys) > 0 {
		t.Errorf("the main cluster itself stores %v: %v", keys, err)
	}
	poll.Until(t, "the main cluster has annex's discovery of it", func() string { return isDiscovered(t, mainClients, w.group, 1) })
	if after := mainClients.readRepeatedly(t, document); !bytes.Equal(before.body, after.body) {
		t.Errorf("the v3 document changed from\n%s\nto\n%s", before.body, after.body)
	}
	now := mainClients.documents(t)
	if diff := cmp.Diff(pathsBefore, pathsOf(now, w.group)); diff != "" {
		t.Errorf("the v2 paths changed (-before +after):\n%s", diff)
	}
	checkUnhurt(t, s.before, now)
	if s.own(t).documents(t).index["apis/"+w.group+"/v1"] == "" {
		t.Error("annex's own endpoint does not describe it")
	}
	if printed, err := kubectl(t, "", "explain", "widgets.spec.color", "--api-version="+w.group+"/v1"); err != nil || !strings.Contains(printed, "The color of the paint.") {
		t.Errorf("explain: %v\n%s", err, printed)
	}
}

// newDefinedWidgets defines Widgets in the main cluster, ready to be taken over.
func newDefinedWidgets(t *testing.T, s *sharedAnnex) widgets {
	t.Helper()
	w := widgets{group: newGroup(), namespace: newNamespace(t)}
	expect.NoError(t, s.installation.AllowGroup(t.Context(), w.group))
	mainClients := main(t)
	mainClients.define(t, newDefinition(t, w.group, "widgets", "Widget"))
	poll.Until(t, "the main cluster describes "+w.group, func() string {
		now := mainClients.documents(t)
		if now.index["apis/"+w.group+"/v1"] == "" || now.paths["/apis/"+w.group+"/v1/widgets"] == nil {
			return "not yet"
		}
		return ""
	})
	return w
}

// takeOver has annex take over the definition, and returns when it has.
func (s *sharedAnnex) takeOver(t *testing.T, w widgets) {
	t.Helper()
	definitions := main(t).extensions.ApiextensionsV1().CustomResourceDefinitions()
	poll.Until(t, "the definition is labelled", func() string {
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
	own := s.own(t)
	poll.Until(t, "annex has taken the definition over", func() string {
		got := own.get(t, "/apis/hosting.annex.dev/v1alpha1/hostedresources/widgets."+w.group)
		var resource hostingv1alpha1.HostedResource
		if err := json.Unmarshal(got.body, &resource); err != nil {
			return got.String()
		}
		for _, condition := range []string{hostingv1alpha1.HostedResourceDefinitionSynced, hostingv1alpha1.HostedResourcePublished} {
			if !meta.IsStatusConditionTrue(resource.Status.Conditions, condition) {
				return fmt.Sprintf("%+v", resource.Status.Conditions)
			}
		}
		return ""
	})
	// No status tells that the main cluster has switched: that an object is seen which
	// only annex has does. A write before makes annex give the group back.
	if _, err := w.by(own).Create(t.Context(), w.object("marker"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the main cluster has switched to annex", func() string {
		if _, err := w.by(main(t)).Get(t.Context(), "marker", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// pathsOf are the paths of a group in v2, as they are written there.
func pathsOf(d documents, group string) map[string]string {
	found := map[string]string{}
	for path, content := range d.paths {
		if strings.HasPrefix(path, "/apis/"+group+"/") {
			found[path] = string(content)
		}
	}
	return found
}
