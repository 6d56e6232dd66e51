// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// token is a continue token of a resource that may move between a main cluster and annex while a client
// reads pages: each would read its own history at the revision of the other's token. So annex's revision is
// in a field that upstream ignores, and tokens without it have expired. To upstream they are of the first
// revision, which the main cluster's etcd has compacted. A token of a negative revision continues at the
// present one, on either side.
type token struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
	Annex           int64  `json:"annex,omitempty"`
}

const (
	firstRevision = 1
	// anyPrefix stands for the prefix of the listed keys, which a token does not contain.
	anyPrefix = "/"
	// inconsistentContinue is upstream's message (k8s.io/apiserver/pkg/storage/etcd3/errors.go).
	inconsistentContinue = "The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list."
)

// withUpstreamToken replaces annex's token by upstream's. It fails as upstream does for one that is invalid, and
// for another server's as upstream does for one that has expired.
func withUpstreamToken(options storage.ListOptions) (storage.ListOptions, error) {
	if !options.Recursive || options.Predicate.Continue == "" {
		return options, nil
	}
	revision, key, err := storage.ValidateListOptions(anyPrefix, versioner, options)
	if err != nil || revision == 0 {
		return options, err
	}
	t, err := decodeToken(options.Predicate.Continue)
	if err != nil || t.Annex <= 0 {
		expired := apierrors.NewResourceExpired(inconsistentContinue)
		expired.ErrStatus.Continue, err = storage.EncodeContinue(key, anyPrefix, -1)
		if err != nil {
			return options, fmt.Errorf("encode a continue token: %w", err)
		}
		return options, expired
	}
	t.ResourceVersion, t.Annex = t.Annex, 0
	options.Predicate.Continue, err = t.encode()
	return options, err
}

// setAnnexToken replaces upstream's token in a list by annex's.
func setAnnexToken(list runtime.Object) error {
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("list into a %T: %w", list, err)
	}
	if accessor.GetContinue() == "" {
		return nil
	}
	t, err := decodeToken(accessor.GetContinue())
	if err != nil {
		return err
	}
	t.ResourceVersion, t.Annex = firstRevision, t.ResourceVersion
	encoded, err := t.encode()
	accessor.SetContinue(encoded)
	return err
}

func decodeToken(encoded string) (t token, err error) {
	content, err := base64.RawURLEncoding.DecodeString(encoded)
	if err == nil {
		err = json.Unmarshal(content, &t)
	}
	if err != nil {
		return token{}, fmt.Errorf("decode a continue token: %w", err)
	}
	return t, nil
}

func (t token) encode() (string, error) {
	content, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("encode a continue token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(content), nil
}
