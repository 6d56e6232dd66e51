// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/annex-dev/annex/pkg/storage/move"
)

// watchTimeout exceeds the time in which a move has to catch up and to switch. Without it the API
// server ends a watch after 30 to 60 minutes.
const watchTimeout = 24 * time.Hour

// Watch implements move.Source.
func (s *Source) Watch(ctx context.Context, after int64) (move.Watch, error) {
	stream, err := s.open(ctx, after, watchTimeout)
	if err != nil {
		return nil, err
	}
	w := &watcher{source: s, connection: &stream.connection, events: make(chan move.Events), delivered: after, heard: time.Now()}
	w.ctx, w.cancel = context.WithCancel(ctx)
	go w.run(stream)
	return w, nil
}

type stream struct {
	source     *Source
	connection connection
	body       io.ReadCloser
	decoder    *json.Decoder
}

func (s *Source) open(ctx context.Context, after int64, timeout time.Duration) (*stream, error) {
	opened := &stream{source: s}
	body, err := s.request().
		Param("watch", "true").
		Param("allowWatchBookmarks", "true").
		Param("resourceVersion", strconv.FormatInt(after, 10)).
		Param("timeoutSeconds", strconv.FormatInt(int64(timeout/time.Second), 10)).
		MaxRetries(0). // whether it is tried again depends on the state of the move
		Stream(opened.connection.trace(ctx))
	if err != nil {
		return nil, s.failed("watch", err)
	}
	opened.body, opened.decoder = body, json.NewDecoder(body)
	return opened, nil
}

func (s *stream) close() { _ = s.body.Close() }

// next returns the next event, or io.EOF at the end of the watch. A bookmark has only Complete.
func (s *stream) next() (move.Events, error) {
	events, err := s.decode()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = io.EOF
	case err != nil:
		err = s.source.failed("watch", err)
	}
	return events, err
}

func (s *stream) decode() (events move.Events, err error) {
	var event struct {
		Type   watch.EventType
		Object json.RawMessage
	}
	if err := s.decoder.Decode(&event); err != nil {
		return events, err
	}
	if event.Type == watch.Error {
		var status metav1.Status
		if err := json.Unmarshal(event.Object, &status); err != nil {
			return events, fmt.Errorf("decode an error: %w", err)
		}
		return events, apierrors.FromObject(&status)
	}
	object, err := decodeObject(event.Object, s.source.stored)
	if err != nil {
		return events, err
	}
	events.Complete, events.Current = object.Revision, object.Revision
	if event.Type != watch.Bookmark {
		events.Changes = []move.Change{{Object: object, Created: event.Type == watch.Added, Deleted: event.Type == watch.Deleted}}
	}
	return events, nil
}
