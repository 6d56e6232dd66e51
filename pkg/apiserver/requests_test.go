// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestRefusal(t *testing.T) {
	t.Parallel()
	isNone := func(err error) bool { return err == nil }
	tests := map[string]struct {
		resource, parameter, value string
		want                       func(error) bool
	}{
		"a resource":               {resource: "widgets", want: isNone},
		"a dot":                    {resource: "widgets.internal", want: apierrors.IsNotFound},
		"a dot at the end":         {resource: "widgets.", want: apierrors.IsNotFound},
		"a selector":               {resource: "widgets", parameter: "labelSelector", value: "a in (b,c)", want: isNone},
		"the largest selector":     {resource: "widgets", parameter: "labelSelector", value: strings.Repeat("a=b,", maxSelectorTerms-1) + "a=b", want: isNone},
		"too many requirements":    {resource: "widgets", parameter: "labelSelector", value: strings.Repeat("!a,", maxSelectorTerms) + "a", want: apierrors.IsBadRequest},
		"too many values":          {resource: "widgets", parameter: "labelSelector", value: "a in (" + strings.Repeat("b,", maxSelectorTerms) + "b)", want: apierrors.IsBadRequest},
		"too many fields":          {resource: "widgets", parameter: "fieldSelector", value: strings.Repeat("a=b,", maxSelectorTerms) + "a=b", want: apierrors.IsBadRequest},
		"many of something else":   {resource: "widgets", parameter: "continue", value: strings.Repeat(",", 2*maxSelectorTerms), want: isNone},
		"a selector without query": {resource: "widgets", parameter: "labelSelector", want: isNone},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := &url.URL{RawQuery: url.Values{test.parameter: {test.value}}.Encode()}
			if err := refusal(&request.RequestInfo{IsResourceRequest: true, Resource: test.resource}, address); !test.want(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}
