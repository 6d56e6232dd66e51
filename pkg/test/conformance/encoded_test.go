// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// customPods lets the suite use storage of custom resources, which has unstructured objects and
// reads encoded ones.
type customPods struct {
	storage.Interface
	encoded storage.Interface
}

// customPodKind has the group of the resource, as each custom resource must.
var customPodKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

func newCustomPod() runtime.Object {
	pod := &unstructured.Unstructured{}
	pod.SetGroupVersionKind(customPodKind)
	return pod
}

func newCustomPodList() runtime.Object {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "PodList"})
	return list
}

func customPodAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	pod, err := podOf(obj)
	if err != nil {
		return nil, nil, err
	}
	return podAttrs(pod)
}

// customPodOf returns a pod as a custom resource, and nil for no pod.
func customPodOf(obj runtime.Object) (*unstructured.Unstructured, error) {
	if obj == nil {
		return nil, nil
	}
	versioned := &examplev1.Pod{}
	if err := scheme.Convert(obj, versioned, nil); err != nil {
		return nil, err
	}
	versioned.SetGroupVersionKind(customPodKind)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
	return &unstructured.Unstructured{Object: content}, err
}

// podOf returns the pod of a custom resource, encoded or not.
func podOf(obj runtime.Object) (*example.Pod, error) {
	if shared, ok := obj.(runtime.CacheableObject); ok {
		obj = shared.GetObject()
	}
	if object, ok := obj.(*watchcache.Object); ok {
		decoded, err := object.Decode()
		if err != nil {
			return nil, err
		}
		obj = decoded
	}
	custom, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T is not a custom resource", obj)
	}
	versioned, pod := &examplev1.Pod{}, &example.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(custom.Object, versioned); err != nil {
		return nil, err
	}
	return pod, scheme.Convert(versioned, pod, nil)
}

// setPod sets a pod of the suite, which may be nil.
func setPod(out runtime.Object, from runtime.Object) error {
	pod, err := podOf(from)
	if into, ok := out.(*example.Pod); ok && err == nil {
		*into = *pod
	}
	return err
}

// Create implements storage.Interface.
func (s customPods) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	custom, err := customPodOf(obj)
	if err != nil {
		return err
	}
	created := newCustomPod()
	if err := s.Interface.Create(ctx, key, custom, created, ttl); err != nil {
		return err
	}
	return setPod(out, created)
}

// Delete implements storage.Interface.
func (s customPods) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, suggestion runtime.Object, options storage.DeleteOptions,
) error {
	suggested, err := customPodOf(suggestion)
	if err != nil {
		return err
	}
	deleted := newCustomPod()
	err = s.Interface.Delete(ctx, key, deleted, preconditions, func(ctx context.Context, obj runtime.Object) error {
		if obj == nil { // of an object that cannot be read
			return validate(ctx, nil)
		}
		pod, err := podOf(obj)
		if err != nil {
			return err
		}
		return validate(ctx, pod)
	}, suggested, options)
	if err != nil {
		return err
	}
	return setPod(out, deleted)
}

// GuaranteedUpdate implements storage.Interface.
func (s customPods) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, suggestion runtime.Object,
) error {
	suggested, err := customPodOf(suggestion)
	if err != nil {
		return err
	}
	updated := newCustomPod()
	err = s.Interface.GuaranteedUpdate(ctx, key, updated, ignoreNotFound, preconditions,
		func(obj runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
			pod, err := podOf(obj)
			if err != nil {
				return nil, nil, err
			}
			changed, ttl, err := update(pod, response)
			if err != nil {
				return nil, nil, err
			}
			custom, err := customPodOf(changed)
			return custom, ttl, err
		}, suggested)
	if err != nil {
		return err
	}
	return setPod(out, updated)
}

// Get implements storage.Interface.
func (s customPods) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	object := &watchcache.Object{}
	if err := s.encoded.Get(ctx, key, options, object); err != nil {
		return err
	}
	return setPod(out, object)
}

// GetList implements storage.Interface.
func (s customPods) GetList(ctx context.Context, key string, options storage.ListOptions, out runtime.Object) error {
	list, into := &watchcache.List{}, out.(*example.PodList)
	options.Predicate.GetAttrs = watchcache.Attrs
	if err := s.encoded.GetList(ctx, key, options, list); err != nil {
		return err
	}
	into.ListMeta, into.Items = list.ListMeta, make([]example.Pod, 0, len(list.Items))
	for i := range list.Items {
		pod, err := podOf(&list.Items[i])
		if err != nil {
			return err
		}
		into.Items = append(into.Items, *pod)
	}
	return nil
}

// Watch implements storage.Interface.
func (s customPods) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	options.Predicate.GetAttrs = watchcache.Attrs
	events, err := s.encoded.Watch(ctx, key, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		if pod, err := podOf(event.Object); err == nil {
			event.Object = pod
		}
		return event, true // errors as they are
	}), nil
}

// customCodec is a codec of pods as custom resources.
type customCodec struct{ runtime.Codec }

// Decode implements runtime.Decoder.
func (c customCodec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	pod, kind, err := c.Codec.Decode(data, nil, &example.Pod{})
	if err != nil {
		return nil, kind, err
	}
	custom, err := customPodOf(pod)
	if out, ok := into.(*unstructured.Unstructured); ok && err == nil {
		*out = *custom
		return out, kind, nil
	}
	return custom, kind, err
}

// Encode implements runtime.Encoder.
func (c customCodec) Encode(obj runtime.Object, w io.Writer) error {
	pod, err := podOf(obj)
	if err != nil {
		return err
	}
	return c.Codec.Encode(pod, w)
}
