// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	gadgets    = 4
	largeBytes = 1 << 20
	// slowly is the pause of clients whose requests are expensive.
	slowly = 2 * time.Second
	// otherWriters write other objects on each side.
	otherWriters = 4
	oddReaders   = 4
	// forgedPrefix begins the names of widgets that a tenant creates, deletes and gives owners that are gone.
	forgedPrefix = "forged-"
)

// installGadgets creates a definition of 1 MB, whose objects a webhook stamps and another keeps as they are.
func (f *fixture) installGadgets() {
	f.Helper()
	crd := crds.New(f.group, "gadgets", "v1")
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = largeSchema()
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["username"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["value"] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
	expect.Create(f, f.main.CRDs(), crd)
	poll.UntilNoError(f, "the main cluster serves gadgets", func() error {
		_, err := f.main.Dynamic.Resource(f.resourceOf("Gadget")).List(f.Context(), metav1.ListOptions{})
		return err
	})
	f.addWebhooks("Gadget")
}

// exemption are the rights that a Rollback with the option for webhooks needs.
func exemption() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
		Verbs: []string{"get", "list", "watch", "patch"},
	}
}

// gadgeteer creates, labels and deletes gadgets, one of which is as large as etcd takes.
type gadgeteer struct {
	*history
	random  *rand.Rand
	fixture *fixture
	user    string
	gadgets dynamic.ResourceInterface
	n       int64
}

func (g *gadgeteer) run(ctx context.Context) {
	for ctx.Err() == nil {
		g.n++
		name := fmt.Sprintf("gadget-%d", g.random.IntN(gadgets))
		began := time.Now()
		if err := g.write(name); err != nil && !g.mayFail(began) {
			g.problem("write of %s: %v (after %s)", name, err, time.Since(began))
		}
		select {
		case <-time.After(slowly):
		case <-ctx.Done():
		}
	}
}

// write reads an object, which must be as it was left, and changes it.
func (g *gadgeteer) write(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	object, err := g.gadgets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		object, err = nil, nil
	}
	if err != nil {
		return err
	}
	g.wantPossible("read", name, g.stateOf(object))
	made := write{state: state{exists: true, value: g.n}}
	labels := map[string]string{"n": fmt.Sprint(g.n)}
	switch {
	case object == nil:
		object = g.fixture.newWidget("default", name)
		object.SetKind("Gadget")
		object.SetLabels(labels)
		if name == "gadget-0" {
			random := make([]byte, largeBytes)
			for i := range random {
				random[i] = byte(g.random.Uint32())
			}
			object.Object["spec"] = map[string]any{"section0": map[string]any{"field0": base64.StdEncoding.EncodeToString(random)}}
		}
		_, err = g.gadgets.Create(ctx, object, metav1.CreateOptions{})
	case g.random.IntN(8) == 0:
		made.state = state{}
		err = g.gadgets.Delete(ctx, name, metav1.DeleteOptions{})
	default:
		object.SetLabels(labels)
		_, err = g.gadgets.Update(ctx, object, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) {
		return nil
	}
	made.acknowledged = err == nil
	g.wrote(name, made)
	return err
}

// stateOf returns the state of a gadget, and records a problem unless the webhook has stamped it once.
func (g *gadgeteer) stateOf(gadget *unstructured.Unstructured) (s state) {
	if gadget == nil {
		return s
	}
	if got := g.fixture.username(gadget); got != g.user {
		g.problem("%s is stamped with %q, want %q", gadget.GetName(), got, g.user)
	}
	_, _ = fmt.Sscan(gadget.GetLabels()["n"], &s.value)
	s.exists = true
	return s
}

// check compares the gadgets with what was acknowledged.
func (g *gadgeteer) check(list []unstructured.Unstructured) {
	got := map[string]*unstructured.Unstructured{}
	for i := range list {
		got[list[i].GetName()] = &list[i]
	}
	for i := range gadgets {
		name := fmt.Sprintf("gadget-%d", i)
		g.wantPossible("in the end", name, g.stateOf(got[name]))
	}
}

// startOthers starts clients that write other objects into both etcds, a tenant that forges what annex once trusted, and
// readers without rights on anything else, most of whose requests fail.
func (r *torture) startOthers(victim *corev1.ConfigMap) {
	loop := func(user string, pause time.Duration, do func(ctx context.Context, widgets dynamic.NamespaceableResourceInterface, n int)) {
		widgets := r.client(user).Dynamic.Resource(r.resource())
		r.start(func(ctx context.Context) {
			for n := 0; ctx.Err() == nil; n++ {
				do(ctx, widgets, n)
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
			}
		})
	}
	for i := range otherWriters {
		name := fmt.Sprintf("other-%d", i)
		configMaps := r.client(name).Kube.CoreV1().ConfigMaps("default")
		expect.Create(r.fixture, configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
		loop(name, r.pause, func(ctx context.Context, _ dynamic.NamespaceableResourceInterface, n int) {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/%s":"%d"}}}`, name, n)
			_, _ = configMaps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_ = r.patchStore(ctx, r.annexClients(), "widgets."+r.group, i, n)
		})
	}
	loop("tenant", slowly, func(ctx context.Context, widgets dynamic.NamespaceableResourceInterface, n int) {
		forged, owner := r.newWidget("default", fmt.Sprint(forgedPrefix, n%8)), victim.OwnerReferences[0]
		forged.SetAnnotations(map[string]string{
			"annex.dev/uid": string(owner.UID), "annex.dev/injected": "{}", "annex.dev/main-copy": "frozen", "annex.dev/main-uid": r.uids["old-0"],
		})
		forged.SetLabels(map[string]string{"annex.dev/published-by": "annex-system.annex"})
		forged.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: r.group + "/v1", Kind: "Widget", Name: "old-0", UID: victim.UID}, owner})
		_ = widgets.Namespace("default").Delete(ctx, forged.GetName(), metav1.DeleteOptions{})
		_, _ = widgets.Namespace("default").Create(ctx, forged, metav1.CreateOptions{})
	})
	for i := range oddReaders {
		loop(fmt.Sprintf("odd-%d", i), r.pause, func(ctx context.Context, widgets dynamic.NamespaceableResourceInterface, n int) {
			empty, options := widgets.Namespace("empty"), metav1.ListOptions{ResourceVersion: "999999999999"} // 504 after 3 s
			switch n % 4 {
			case 0:
				options = metav1.ListOptions{Continue: "nonsense"}
			case 1:
				options = metav1.ListOptions{LabelSelector: strings.Repeat("a,", 1000) + "a"}
			case 2:
				options.ResourceVersionMatch = metav1.ResourceVersionMatchExact
			}
			_, _ = empty.List(ctx, options)
		})
	}
}
