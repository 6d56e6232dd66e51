// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package typed

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// Serialization knows the kinds of all groups, and how they are read and written.
type Serialization struct {
	Scheme         *runtime.Scheme
	ParameterCodec runtime.ParameterCodec
	Codecs         serializer.CodecFactory
}

// GroupInfo begins the description of a group, which serves nothing yet.
func (k Serialization) GroupInfo(group string) genericapiserver.APIGroupInfo {
	return genericapiserver.NewDefaultAPIGroupInfo(group, k.Scheme, k.ParameterCodec, k.Codecs)
}
