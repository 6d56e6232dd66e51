// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apiserver/pkg/apis/audit"
	apiaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// discarding is an audit.Sink.
type discarding struct{}

func (discarding) ProcessEvents(...*audit.Event) bool { return true }

func TestWriteOf(t *testing.T) {
	t.Parallel()
	unnamed := func(i *request.RequestInfo) { i.Name = "" }
	const json, mergePatch, apply = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"
	for name, test := range map[string]struct {
		verb, subresource, contentType, query string
		change                                func(*request.RequestInfo)
		audited                               audit.Level
		want                                  bool
	}{
		"update":                     {verb: "update", contentType: json, want: true},
		"patch":                      {verb: "patch", contentType: mergePatch, want: true},
		"status":                     {verb: "update", subresource: "status", contentType: json, want: true},
		"charset":                    {verb: "update", contentType: json + "; charset=utf-8", want: true},
		"charset of a patch":         {verb: "patch", contentType: "Application/Merge-Patch+JSON;charset=UTF-8", want: true},
		"scale":                      {verb: "update", subresource: "scale", contentType: json},
		"create":                     {verb: "create", contentType: json, change: unnamed, want: true},
		"create with a name":         {verb: "create", contentType: json},
		"create a status":            {verb: "create", subresource: "status", contentType: json, change: unnamed},
		"create in YAML":             {verb: "create", contentType: "application/yaml", change: unnamed},
		"delete":                     {verb: "delete", query: "dryRun=All", want: true},
		"delete a status":            {verb: "delete", subresource: "status"},
		"delete without a name":      {verb: "delete", change: unnamed},
		"delete, audited":            {verb: "delete", audited: audit.LevelRequest},
		"update in YAML":             {verb: "update", contentType: "application/yaml"},
		"update by a patch":          {verb: "update", contentType: mergePatch},
		"JSON patch":                 {verb: "patch", contentType: "application/json-patch+json"},
		"strategic merge patch":      {verb: "patch", contentType: "application/strategic-merge-patch+json"},
		"apply":                      {verb: "patch", contentType: apply, want: true},
		"forced apply":               {verb: "patch", contentType: apply, query: "force=true", want: true},
		"apply, not forced":          {verb: "patch", contentType: apply, query: "force=false", want: true},
		"apply, odd force":           {verb: "patch", contentType: apply, query: "force=yes"},
		"apply, force twice":         {verb: "patch", contentType: apply, query: "force=true&force=false"},
		"apply of CBOR":              {verb: "patch", contentType: "application/apply-patch+cbor"},
		"patch of JSON":              {verb: "patch", contentType: json},
		"no type":                    {verb: "update"},
		"bad type":                   {verb: "update", contentType: json + ";;"},
		"no resource":                {verb: "update", contentType: json, change: func(i *request.RequestInfo) { i.IsResourceRequest = false }},
		"no name":                    {verb: "update", contentType: json, change: unnamed},
		"known options":              {verb: "update", contentType: json, query: "fieldManager=a&fieldValidation=Strict&timeout=5s", want: true},
		"dryRun":                     {verb: "update", contentType: json, query: "dryRun=All"},
		"empty dryRun":               {verb: "patch", contentType: mergePatch, query: "dryRun="},
		"pretty":                     {verb: "update", contentType: json, query: "fieldManager=a&pretty=true"},
		"force":                      {verb: "patch", contentType: mergePatch, query: "force=true"},
		"audited without the object": {verb: "update", contentType: json, audited: audit.LevelMetadata, want: true},
		"audited":                    {verb: "update", contentType: json, audited: audit.LevelRequest},
		"audited with the answer":    {verb: "update", contentType: json, audited: audit.LevelRequestResponse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/?"+test.query, nil)
			req.Header.Set("Content-Type", test.contentType)
			info := &request.RequestInfo{IsResourceRequest: true, Verb: test.verb, Name: "a", Subresource: test.subresource}
			if test.change != nil {
				test.change(info)
			}
			ctx := request.WithRequestInfo(req.Context(), info)
			if test.audited != "" {
				ctx = apiaudit.WithAuditContext(ctx)
				expect.NoError(t, apiaudit.AuditContextFrom(ctx).Init(apiaudit.RequestAuditConfig{Level: test.audited}, discarding{}))
			}
			_, ok := writeOf(req.WithContext(ctx))
			expect.Equal(t, test.want, ok)
		})
	}
	if _, ok := writeOf(httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil)); ok {
		t.Error("a request without a RequestInfo is an update")
	}
}

func TestManagerOf(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("f", validation.FieldManagerMaxLength)
	for name, test := range map[string]struct{ query, userAgent, want string }{
		"browser":                {"", "Mozilla/5.0 (X11; Linux x86_64)", "Mozilla"},
		"fieldManager":           {"me", "kubectl/v1.37.0", "me"},
		"empty fieldManager":     {"", "kubectl/v1.37.0", "kubectl"},
		"spaces":                 {"", "a b/1", "a b"},
		"no version":             {"", "curl", "curl"},
		"nothing before a slash": {"", "/1", ""},
		"none":                   {"", "", ""},
		"longest":                {"", longest + "/1", longest},
		"too long":               {"", longest + "g/1", longest},
		"several bytes":          {"", strings.Repeat("🍔", validation.FieldManagerMaxLength), strings.Repeat("🍔", validation.FieldManagerMaxLength/4)},
		"no room for the last":   {"", longest[1:] + "é" + "f", longest[1:]},
		"not printable":          {"", "a\u200bb\tc\u00a0d", "abcd"},
		"not UTF-8":              {"", "a\xffb", "a\ufffdb"},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/?fieldManager="+url.QueryEscape(test.query), nil)
		req.Header.Set("User-Agent", test.userAgent)
		expect.Equal(t, test.want, managerOf(req.URL.Query(), req.UserAgent()), name)
	}
}
