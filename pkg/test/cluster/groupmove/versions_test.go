// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/annex-dev/annex/pkg/test/crds"
)

// secondVersion is not stored. What v1 has in spec.value, it has in spec.number.
const secondVersion = "v2"

// withSecondVersion adds the version, with a webhook that converts until the end of the test.
func withSecondVersion(t *testing.T, convert func(object []byte, apiVersion string) ([]byte, error)) func(*definition) {
	t.Helper()
	webhook := crds.ConvertEach(convert).Start(t)
	return func(crd *definition) {
		second := *crd.Spec.Versions[0].DeepCopy()
		second.Name, second.Storage = secondVersion, false
		crd.Spec.Versions = append(crd.Spec.Versions, second)
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: webhook}
	}
}

func convert(raw []byte, apiVersion string) ([]byte, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	before := valueField(object)
	object.SetAPIVersion(apiVersion)
	if spec, has := object.Object["spec"].(map[string]any); has {
		if value, has := spec[before]; has {
			delete(spec, before)
			spec[valueField(object)] = value
		}
	}
	return object.MarshalJSON()
}

// valueField returns the field of spec that has the value of a widget.
func valueField(widget *unstructured.Unstructured) string {
	if strings.HasSuffix(widget.GetAPIVersion(), "/"+secondVersion) {
		return "number"
	}
	return "value"
}

// newSecond is newWidget for the second version.
func (f *fixture) newSecond(namespace, name string) *unstructured.Unstructured {
	widget := f.newWidget(namespace, name)
	widget.SetAPIVersion(f.group + "/" + secondVersion)
	widget.Object["spec"] = map[string]any{valueField(widget): int64(0)}
	return widget
}
