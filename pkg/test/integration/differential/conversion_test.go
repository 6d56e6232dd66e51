// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/annex-dev/annex/pkg/test/crds"
)

// startConversion serves conversions of custom resources by a webhook.
func startConversion(t testing.TB) *apiextensionsv1.CustomResourceConversion {
	t.Helper()
	return &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: crds.ConvertEach(convert).Start(t)}
}

// convert moves a field, and changes a label, which the selectors of each version then see.
func convert(raw []byte, apiVersion string) ([]byte, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	from, to := "text", "words"
	if !strings.HasSuffix(apiVersion, "/v2") {
		from, to = to, from
	}
	if text, found, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", from); found {
		unstructured.RemoveNestedField(object.Object, "spec", from)
		if err := unstructured.SetNestedField(object.Object, text, "spec", to); err != nil {
			return nil, err
		}
	}
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["converted"] = to
	object.SetLabels(labels)
	object.SetAPIVersion(apiVersion)
	return object.MarshalJSON()
}
