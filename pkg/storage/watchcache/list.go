// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// List is a list of Objects.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Object `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *List) DeepCopyObject() runtime.Object {
	copied := &List{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&copied.ListMeta)
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopyObject().(*Object))
	}
	return copied
}

// chunk is the size of the writes of a list.
const chunk = 32 << 10

// WriteJSON writes the list in the order of encoding/json: by key. The first write is short:
// upstream's writer of responses takes it for a stream, and collects more before it decides
// whether to compress.
func (l *List) WriteJSON(w io.Writer) error {
	version, err := json.Marshal(l.APIVersion)
	if err != nil {
		return err
	}
	end, err := l.end()
	if err != nil {
		return err
	}
	if _, err := w.Write([]byte("{")); err != nil {
		return err
	}
	text := make([]byte, 0, chunk+chunk/4)
	text = append(append(append(text, `"apiVersion":`...), version...), `,"items":[`...)
	for i := range l.Items {
		if i > 0 {
			text = append(text, ',')
		}
		if text, err = l.Items[i].appendJSON(text); err != nil {
			return err
		}
		text = text[:len(text)-1] // a newline
		if len(text) >= chunk {
			if _, err := w.Write(text); err != nil {
				return err
			}
			text = text[:0]
		}
	}
	_, err = w.Write(append(text, end...))
	return err
}

// end returns the JSON after the items.
func (l *List) end() ([]byte, error) {
	metadata := map[string]any{"continue": l.Continue, "resourceVersion": l.ResourceVersion}
	if l.RemainingItemCount != nil {
		metadata["remainingItemCount"] = *l.RemainingItemCount
	}
	end, err := json.Marshal(struct {
		Kind     string         `json:"kind"`
		Metadata map[string]any `json:"metadata"`
	}{l.Kind, metadata})
	if err != nil {
		return nil, err
	}
	return append([]byte("],"), append(end[1:], '\n')...), nil
}
