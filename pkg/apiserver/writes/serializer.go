// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/apiserver/front"
)

// serializer decodes no body: a handler receives the input of its updater.
type serializer struct{ front.Serializer }

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (serializer) DecoderToVersion(runtime.Decoder, runtime.GroupVersioner) runtime.Decoder {
	return decoder{}
}

type decoder struct{}

// Decode implements runtime.Decoder.
func (decoder) Decode(_ []byte, kind *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return into, kind, nil
}

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (s serializer) EncoderForVersion(to runtime.Encoder, version runtime.GroupVersioner) runtime.Encoder {
	return encoder{s.Serializer.EncoderForVersion(to, version)}
}

type encoder struct{ runtime.Encoder }

// Encode implements runtime.Encoder.
func (e encoder) Encode(object runtime.Object, w io.Writer) error {
	if sent, ok := object.(*input); ok {
		_, err := w.Write(sent.body)
		return err
	}
	return e.Encoder.Encode(object, w)
}
