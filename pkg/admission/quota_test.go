// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestQuotaPlugin: the shortcut must not change the decisions of upstream's plugin.
func TestQuotaPlugin(t *testing.T) {
	t.Parallel()
	exhausted := corev1.ResourceList{"count/widgets.example.com": resource.MustParse("1")}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "full", Name: "few"},
		Spec:       corev1.ResourceQuotaSpec{Hard: exhausted},
		Status:     corev1.ResourceQuotaStatus{Hard: exhausted, Used: exhausted},
	}
	const limited = `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
		"limitedResources": [{"apiGroup": "example.com", "resource": "widgets", "matchContains": ["count/widgets.example.com"]}]}`
	tests := map[string]struct {
		config, namespace string
		unsynced          bool
		want              string
	}{
		"no quota":                 {namespace: "free"},
		"quota used up":            {namespace: "full", want: "exceeded quota"},
		"missing a required quota": {config: limited, namespace: "free", want: "insufficient quota"},
		"informer not synced":      {namespace: "full", unsynced: true, want: "exceeded quota"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(quota)
			factory := informers.NewSharedInformerFactory(client, 0)
			chain := append(admission.PluginInitializers{initializer.New(client, nil, factory, nil, nil, nil, t.Context().Done(), nil)}, Initializers()...)
			var config io.Reader
			if test.config != "" {
				config = strings.NewReader(test.config)
			}
			plugin, err := NewPlugins().InitPlugin(resourcequota.PluginName, config, chain)
			expect.NoError(t, err)
			if !test.unsynced {
				factory.StartWithContext(t.Context())
				factory.WaitForCacheSync(t.Context().Done())
			}
			widget := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": test.namespace}}}
			err = plugin.(admission.ValidationInterface).Validate(t.Context(), admission.NewAttributesRecord(widget, nil,
				widgets.GroupVersion().WithKind("Widget"), test.namespace, "w", widgets, "", admission.Create, &metav1.CreateOptions{}, false, nil), nil)
			expect.ErrorOrNone(t, err, test.want)
		})
	}
}
