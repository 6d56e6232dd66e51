// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/audit"
	apiaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
)

// contentTypes has the media types of the bodies that can be planned, by verb. Apply configurations are JSON too.
var contentTypes = map[string][]string{"create": {runtime.ContentTypeJSON}, "update": {runtime.ContentTypeJSON}, "patch": patchTypes}

var patchTypes = []string{string(types.MergePatchType), string(types.ApplyYAMLPatchType)}

// writeOf returns the write of a request without its body. It reports false unless the request creates, updates or deletes an
// object in a way that can be planned.
func writeOf(req *http.Request) (w plan.Write, ok bool) {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || (info.Verb == "create") != (info.Name == "") {
		return w, false
	}
	if info.Verb == "delete" { // the storage gets the options
		return w, info.Subresource == "" && !isAudited(req)
	}
	if contentTypes[info.Verb] == nil {
		return w, false
	}
	if info.Subresource != "" && (info.Subresource != "status" || info.Verb == "create") {
		return w, false
	}
	contentType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || !slices.Contains(contentTypes[info.Verb], contentType) {
		return w, false
	}
	query := req.URL.Query()
	w = plan.Write{
		Patch: contentType == string(types.MergePatchType), Apply: contentType == string(types.ApplyYAMLPatchType),
		Force: query.Get("force") == "true", Status: info.Subresource == "status", Manager: managerOf(query, req.UserAgent()),
	}
	return w, hasKnownOptions(query, w.Apply) && !isAudited(req)
}

// hasKnownOptions reports whether all options of a request are followed. fieldValidation has nothing to report: objects with
// unknown fields are not planned.
func hasKnownOptions(query url.Values, isApply bool) bool {
	for name, values := range query {
		switch name {
		case "fieldManager", "fieldValidation", "timeout":
		case "force":
			if !isApply || len(values) != 1 || values[0] != "true" && values[0] != "false" {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// isAudited reports whether the audit log has the object of a request, which upstream decodes for it.
func isAudited(req *http.Request) bool {
	context := apiaudit.AuditContextFrom(req.Context())
	return context != nil && context.Enabled() && !context.GetEventLevel().Less(audit.LevelRequest)
}

// managerOf returns the field manager of a request, as upstream's handlers do.
func managerOf(query url.Values, userAgent string) string {
	if manager := query.Get("fieldManager"); manager != "" {
		return manager
	}
	name, _, _ := strings.Cut(userAgent, "/")
	var manager strings.Builder
	for _, c := range name {
		if !unicode.IsPrint(c) {
			continue
		}
		if manager.Len()+utf8.RuneLen(c) > validation.FieldManagerMaxLength {
			break
		}
		manager.WriteRune(c)
	}
	return manager.String()
}

// input is the object of a PUT as the handler receives it. The handler compares its name, and encodes it for the audit log
// even where that has no objects.
type input struct {
	metav1.ObjectMeta
	metav1.TypeMeta
	body []byte
}

// DeepCopyObject implements runtime.Object.
func (i *input) DeepCopyObject() runtime.Object {
	copied := *i
	return &copied
}
