// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package front

import (
	"bytes"
	stdjson "encoding/json"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// Serializer encodes the Objects and Lists of watchcache as their JSON, and all others with a
// scheme. Handlers that decode custom resources embed it and replace DecoderToVersion.
type Serializer struct {
	scheme     *runtime.Scheme
	mediaTypes []runtime.SerializerInfo
}

// NewSerializer returns a Serializer. It offers the media types that upstream offers for custom
// resources: clients get protobuf of metadata and errors, but not of custom resources.
func NewSerializer(scheme *runtime.Scheme) Serializer {
	compact := jsonFormat(scheme, json.SerializerOptions{StreamingCollectionsEncoding: true}, nil)
	return Serializer{scheme: scheme, mediaTypes: []runtime.SerializerInfo{
		{
			MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true,
			Serializer:       compact,
			PrettySerializer: jsonFormat(scheme, json.SerializerOptions{Pretty: true}, indent),
			StrictSerializer: compact,
			StreamSerializer: &runtime.StreamSerializerInfo{
				EncodesAsText: true, Serializer: jsonFormat(scheme, json.SerializerOptions{}, nil), Framer: json.Framer,
			},
		},
		{
			MediaType: runtime.ContentTypeYAML, MediaTypeType: "application", MediaTypeSubType: "yaml", EncodesAsText: true,
			Serializer: jsonFormat(scheme, json.SerializerOptions{Yaml: true}, yaml.JSONToYAML),
		},
		{
			MediaType: runtime.ContentTypeProtobuf, MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf",
			Serializer: protobuf.NewSerializer(scheme, scheme),
			StreamSerializer: &runtime.StreamSerializerInfo{
				Serializer: protobuf.NewRawSerializer(scheme, scheme), Framer: protobuf.LengthDelimitedFramer,
			},
		},
	}}
}

// format is a serializer of a text format. translate makes that from JSON; nil stands for
// JSON itself.
type format struct {
	runtime.Serializer
	translate func([]byte) ([]byte, error)
}

func jsonFormat(scheme *runtime.Scheme, options json.SerializerOptions, translate func([]byte) ([]byte, error)) *format {
	return &format{json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, options), translate}
}

func indent(text []byte) ([]byte, error) {
	var indented bytes.Buffer
	err := stdjson.Indent(&indented, bytes.TrimSuffix(text, []byte("\n")), "", "  ")
	return indented.Bytes(), err
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s Serializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.mediaTypes }

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (s Serializer) EncoderForVersion(to runtime.Encoder, version runtime.GroupVersioner) runtime.Encoder {
	others := versioning.NewCodec(to, nil, runtime.UnsafeObjectConvertor(s.scheme), s.scheme, s.scheme, s.scheme, version, nil, "encoded")
	if text, ok := to.(*format); ok {
		return encoder{Encoder: others, translate: text.translate}
	}
	return others
}

// DecoderToVersion implements runtime.NegotiatedSerializer. It knows no custom resources.
func (s Serializer) DecoderToVersion(from runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return versioning.NewCodec(nil, from, runtime.UnsafeObjectConvertor(s.scheme), s.scheme, s.scheme, s.scheme, nil, version, "encoded")
}

// encoder encodes a text format.
type encoder struct {
	runtime.Encoder
	translate func([]byte) ([]byte, error)
}

// Encode implements runtime.Encoder.
func (e encoder) Encode(obj runtime.Object, w io.Writer) error {
	if shared, ok := obj.(runtime.CacheableObject); ok {
		return shared.CacheEncode(e.Identifier(), e.encode, w)
	}
	return e.encode(obj, w)
}

func (e encoder) encode(obj runtime.Object, w io.Writer) error {
	switch typed := obj.(type) {
	case *watchcache.Object:
		text, err := typed.JSON()
		if err != nil {
			return err
		}
		return e.write(text, w)
	case *watchcache.List:
		if e.translate == nil {
			return typed.WriteJSON(w)
		}
		var text bytes.Buffer
		if err := typed.WriteJSON(&text); err != nil {
			return err
		}
		return e.write(text.Bytes(), w)
	case *metav1.WatchEvent:
		if e.translate == nil && len(typed.Object.Raw) > 0 {
			return writeEvent(typed, w)
		}
	}
	return e.Encoder.Encode(obj, w)
}

func (e encoder) write(text []byte, w io.Writer) (err error) {
	if e.translate != nil {
		if text, err = e.translate(text); err != nil {
			return err
		}
	}
	return splice(w, text)
}

// splice writes text that does not change any more: upstream's buffers of watches keep it.
func splice(w io.Writer, text []byte) error {
	if buffer, ok := w.(runtime.Splice); ok {
		buffer.Splice(text)
		return nil
	}
	_, err := w.Write(text)
	return err
}

// maxKept is the size of an event that the buffer of a watch may copy, because the buffer keeps
// its memory for the next one.
const maxKept = 32 << 10

var eventEnd = []byte("}\n")

// writeEvent writes an event whose object is JSON. Upstream would parse the JSON again.
func writeEvent(event *metav1.WatchEvent, w io.Writer) error {
	object := bytes.TrimSuffix(event.Object.Raw, []byte("\n"))
	start := []byte(`{"type":"` + event.Type + `","object":`)
	if size := len(start) + len(object) + len(eventEnd); size > maxKept {
		return splice(w, slices.Concat(start, object, eventEnd))
	}
	for _, part := range [][]byte{start, object, eventEnd} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}
