// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticobjects makes the mirrors of static objects read-only. annex's own writes do
// not reach it.
package staticobjects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/annex-dev/annex/pkg/admission/undecoded"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// PluginName is the name in --enable-admission-plugins.
const PluginName = "StaticObjects"

// Plugin refuses changes of mirrors.
type Plugin struct {
	*admission.Handler
	read Reader
}

var _ admission.ValidationInterface = &Plugin{}

// New returns the plugin, which a Reader must initialize.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

// Reader reads the metadata of an object. The subresource scale has no annotations.
type Reader func(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*metav1.PartialObjectMetadata, error)

var _ admission.PluginInitializer = Reader(nil)

// Initialize implements admission.PluginInitializer.
func (r Reader) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(*Plugin); ok {
		p.read = r
	}
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.read == nil {
		return errors.New("the reader of metadata is missing")
	}
	return nil
}

// Validate implements admission.ValidationInterface. Status and other subresources may be
// written, except scale, which is a part of the spec.
func (p *Plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	switch attributes.GetSubresource() {
	case "":
	case "scale":
		return p.validateScale(ctx, attributes)
	default:
		return nil
	}
	old, updated := accessor(attributes.GetOldObject()), accessor(attributes.GetObject())
	switch attributes.GetOperation() {
	case admission.Create:
		return validateAnnotations(attributes, nil, updated)
	case admission.Update:
		if !isMirror(old) {
			return validateAnnotations(attributes, old, updated)
		}
		if !onlyBookkeeping(attributes.GetOldObject(), attributes.GetObject()) {
			return readOnly(attributes, old)
		}
	case admission.Delete:
		if isMirror(old) && protected(attributes.GetResource().GroupResource()) {
			return admission.NewForbidden(attributes, fmt.Errorf(
				"it is the mirror of a static object of the source %q, and other objects would be deleted with it: remove it from the source first", source(old)))
		}
	}
	return nil
}

func (p *Plugin) validateScale(ctx context.Context, attributes admission.Attributes) error {
	object, err := p.read(ctx, attributes.GetResource(), attributes.GetNamespace(), attributes.GetName())
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil // the request will fail
		}
		return apierrors.NewInternalError(fmt.Errorf("read the metadata of the scaled object: %w", err))
	}
	if isMirror(object) {
		return readOnly(attributes, object)
	}
	return nil
}

func readOnly(attributes admission.Attributes, mirror metav1.Object) error {
	return admission.NewForbidden(attributes, fmt.Errorf(
		"it is the mirror of a static object of the source %q, which is read-only: change it in the source, see: kubectl get staticsources", source(mirror)))
}

// validateAnnotations refuses annotations that would make an object a mirror. The annotations
// of an orphaned mirror may be removed, all together.
func validateAnnotations(attributes admission.Attributes, old, updated metav1.Object) error {
	after := ownAnnotations(updated)
	if len(after) == 0 || maps.Equal(after, ownAnnotations(old)) {
		return nil
	}
	return admission.NewForbidden(attributes, fmt.Errorf("only annex sets annotations that begin with %s", v1alpha1.StaticPrefix))
}

func ownAnnotations(object metav1.Object) map[string]string {
	own := map[string]string{}
	if object == nil {
		return own
	}
	for key, value := range object.GetAnnotations() {
		if strings.HasPrefix(key, v1alpha1.StaticPrefix) {
			own[key] = value
		}
	}
	return own
}

// accessor returns the metadata of an object, nil without any.
func accessor(object runtime.Object) metav1.Object {
	if object == nil {
		return nil
	}
	metadata, err := meta.Accessor(object)
	if err != nil {
		return nil // an object without metadata is no mirror
	}
	return metadata
}

// isMirror reports whether an object has a static object.
func isMirror(object metav1.Object) bool {
	if object == nil {
		return false
	}
	annotations := object.GetAnnotations()
	return annotations[v1alpha1.StaticMirrorAnnotation] != "" && annotations[v1alpha1.StaticOrphanedAnnotation] == ""
}

func source(mirror metav1.Object) string {
	return mirror.GetAnnotations()[v1alpha1.StaticSourceAnnotation]
}

// protected reports whether deleting an object deletes others.
func protected(resource schema.GroupResource) bool {
	return resource == apiextensions.Resource("customresourcedefinitions") || resource == corev1.Resource("namespaces")
}

// onlyBookkeeping reports whether two versions of an object differ at most in what controllers
// record: the status, of custom resources that have no endpoint for it, and finalizers.
func onlyBookkeeping(old, updated runtime.Object) bool {
	a, b := withoutBookkeeping(old), withoutBookkeeping(updated)
	return a != nil && b != nil && apiequality.Semantic.DeepEqual(a, b)
}

func withoutBookkeeping(object runtime.Object) runtime.Object {
	if custom, ok := object.(*undecoded.Object); ok {
		decoded, err := custom.Decode()
		if err != nil {
			return nil
		}
		object = decoded
	} else {
		object = object.DeepCopyObject()
	}
	metadata := accessor(object)
	if metadata == nil {
		return nil
	}
	metadata.SetFinalizers(nil)
	metadata.SetManagedFields(nil)
	metadata.SetResourceVersion("")
	metadata.SetGeneration(0)
	if custom, ok := object.(*unstructured.Unstructured); ok {
		delete(custom.Object, "status")
	}
	return object
}
