// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"crypto/sha256"
	"errors"
	"time"
)

// magic begins every file. The byte that is no text, and the line endings, show a
// file that was copied as text.
const magic = "\x89annex\r\n\x1a\n"

// FormatVersion is the version of the format that is written. Others are refused.
const FormatVersion = 1

// Bounds of what is read, so that a damaged length cannot have memory allocated.
const (
	maxKey   = 64 << 10
	maxValue = 256 << 20
)

// maxResourceVersion is far above what an etcd ever reaches, and leaves room for what
// comes after a restore.
const maxResourceVersion = 1 << 60

// Kind is the kind of a frame.
type Kind byte

// The kinds in the order in which they may come.
const (
	KindHeader     Kind = 'h'
	KindManifest   Kind = 'm'
	KindDictionary Kind = 'd'
	KindObject     Kind = 'o'
	kindTrailer    Kind = 't'
	// kindUnreadable is how an object is written that is marked as unreadable.
	kindUnreadable Kind = 'u'
)

// order is the place of each kind in a file.
var order = map[Kind]int{KindHeader: 1, KindManifest: 2, KindDictionary: 3, KindObject: 4, kindUnreadable: 4, kindTrailer: 5}

// Header says what a backup is of.
type Header struct {
	FormatVersion int `json:"formatVersion"`
	// Store is the name of the Store that was read.
	Store string `json:"store"`
	// Resource is "<plural>.<group>", or empty if the whole Store was read.
	Resource string `json:"resource,omitempty"`
	// Prefix is that of the Store's keys, with a slash at its end.
	Prefix string `json:"prefix"`
	// Revision is the revision of etcd that was read.
	Revision int64 `json:"revision"`
	// ResourceVersion is the highest resource version that clients may have seen
	// at that revision. It is not Revision for a resource that was restored before.
	ResourceVersion int64 `json:"resourceVersion"`
	// Data says which etcd was read, and which history of it: its cluster, and the UID
	// and the epoch in the Store's mark.
	Data string `json:"data,omitempty"`
	// Expected is how many objects there were to be read, those among them that are
	// left out because they end by themselves. It is for showing progress.
	Expected int64 `json:"expected,omitempty"`
	// Created is when the backup was begun.
	Created time.Time `json:"created"`
	// CreatedBy is the version of annex that wrote it.
	CreatedBy string `json:"createdBy"`
}

// Record is a manifest, a dictionary or an object.
type Record struct {
	Kind  Kind
	Key   string
	Value []byte
	// Unreadable marks an object whose value could not be read when it was backed
	// up. It may be later, with another key.
	Unreadable bool
}

// Trailer says how much a backup has, and marks its end.
type Trailer struct {
	Manifests    int64 `json:"manifests"`
	Dictionaries int64 `json:"dictionaries"`
	Objects      int64 `json:"objects"`
	// Unreadable is how many objects are marked so.
	Unreadable int64 `json:"unreadable,omitempty"`
	// Bytes is the size of the objects' values.
	Bytes int64 `json:"bytes"`
	// Continue is set if this is a part of a backup: where the next one begins.
	Continue string `json:"continue,omitempty"`
}

// valid reports whether there are records of this kind.
func (r Record) valid() bool {
	switch r.Kind {
	case KindManifest, KindDictionary:
		return !r.Unreadable
	}
	return r.Kind == KindObject
}

func (t *Trailer) count(record Record) {
	switch record.Kind {
	case KindManifest:
		t.Manifests++
	case KindDictionary:
		t.Dictionaries++
	case KindObject:
		t.Objects++
		t.Bytes += int64(len(record.Value))
		if record.Unreadable {
			t.Unreadable++
		}
	}
}

// Errors of files that cannot be used; all are found with errors.Is.
var (
	// ErrNotBackup marks a file of another kind.
	ErrNotBackup = errors.New("it is not a backup of annex")
	// ErrTruncated marks a file that ends too early.
	ErrTruncated = errors.New("the backup is not whole: its end is missing")
	// ErrDamaged marks a file whose content is not what was written.
	ErrDamaged = errors.New("the backup is damaged")
	// ErrNewer marks a file of a format that this annex does not know.
	ErrNewer = errors.New("the backup was made by a newer annex")
)

const sumSize = sha256.Size
