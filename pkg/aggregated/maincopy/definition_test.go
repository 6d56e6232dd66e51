// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func webhookConversion(path string) *apiextensionsv1.CustomResourceConversion {
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &path},
		},
	}
}

// TestCloseDefinition restores what opening changes.
func TestCloseDefinition(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		conversion *apiextensionsv1.CustomResourceConversion
		// meanwhile is the change of another client while the definition is open.
		meanwhile func(*apiextensionsv1.CustomResourceDefinition)
		want      *apiextensionsv1.CustomResourceConversion
	}{
		"default": {},
		"none": {
			conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
			want:       &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
		},
		"webhook": {conversion: webhookConversion("https://a"), want: webhookConversion("https://a")},
		"another webhook meanwhile": {
			conversion: webhookConversion("https://a"),
			meanwhile: func(crd *apiextensionsv1.CustomResourceDefinition) {
				crd.Spec.Conversion = webhookConversion("https://b")
			},
			want: webhookConversion("https://b"),
		},
		"version removed meanwhile": {
			conversion: webhookConversion("https://a"),
			meanwhile:  removeVersion,
			want:       webhookConversion("https://a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crd := crds.New("example.com", "widgets", "v1")
			crd.Annotations = map[string]string{"example.com/kept": "true"}
			crd.Spec.Conversion = tc.conversion
			wanted := crd.DeepCopy()
			wanted.Spec.Conversion = tc.want

			changed, err := openDefinition(crd)
			expect.NoError(t, err)
			if !changed {
				t.Errorf("opened (%t): %+v", changed, crd.Spec)
			}
			if changed, err := openDefinition(crd.DeepCopy()); err != nil || changed {
				t.Errorf("opening it again changed it (%v)", err)
			}
			if tc.meanwhile != nil {
				tc.meanwhile(crd)
			}
			expect.NoError(t, closeDefinition(crd))
			expect.Equal(t, wanted, crd)
		})
	}
}

// TestDisturb: both changes of EndWatches are undone.
func TestDisturb(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		crd := crds.New("example.com", "widgets", "v1")
		if open {
			_, err := openDefinition(crd)
			expect.NoError(t, err)
		}
		before := crd.DeepCopy()
		_, err := disturb(crd)
		expect.NoError(t, err)
		if apiequality.Semantic.DeepEqual(before.Spec, crd.Spec) {
			t.Error("the definition was not changed")
		}
		_, err = settle(crd)
		expect.NoError(t, err)
		expect.Equal(t, before, crd)
	}
}
