// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sync/errgroup"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// BenchmarkReads reads 10,000 objects of 2.5 kB from both servers, in turn.
func BenchmarkReads(b *testing.B) {
	p := startPair(b)
	fillMany(b, p.annex)
	serveWidgets(b, p.upstream)
	all := "/apis/" + group + "/v1/widgets"
	for name, r := range map[string]request{
		"list":           {path: all, accept: "application/json"},
		"list-gzip":      {path: all, accept: "application/json", encoding: "gzip"},
		"page":           {path: all + "?limit=500", accept: "application/json"},
		"label":          {path: all + "?labelSelector=part%3D1", accept: "application/json"},
		"get":            {path: "/apis/" + group + "/v1/namespaces/default/widgets/object-00042", accept: "application/json"},
		"metadata":       {path: all, accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
		"table":          {path: all + "?limit=500", accept: "application/json;as=Table;v=v1;g=meta.k8s.io"},
		"initial-events": {path: all + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", accept: "application/json"},
	} {
		for side, s := range map[string]*server{"upstream": p.upstream, "annex": p.annex} {
			b.Run(name+"/"+side, func(b *testing.B) {
				for b.Loop() {
					drain(b, s, r)
				}
			})
		}
	}
}

// many is the number of objects.
const many = 10_000

// serveWidgets waits until a server has the objects in its watch caches.
func serveWidgets(b *testing.B, s *server) {
	b.Helper()
	poll.UntilNoError(b, "widgets are served", func() error {
		_, err := s.dynamic.Resource(widgets).List(b.Context(), metav1.ListOptions{ResourceVersion: "0"})
		return err
	})
}

// fillMany creates objects of 2.5 kB.
func fillMany(b *testing.B, s *server) {
	b.Helper()
	create(b, s, definitionsPath, definition("widgets", "Widget", apiextensionsv1.NamespaceScoped))
	serveWidgets(b, s)
	var creates errgroup.Group
	creates.SetLimit(16)
	for i := range many {
		creates.Go(func() error {
			object := newObject("Widget", "default", i+1)
			object.SetName(fmt.Sprintf("object-%05d", i))
			object.SetFinalizers(nil)
			expectSet(object, randomText(), "spec", "text")
			create(b, s, "/apis/"+group+"/v1/namespaces/default/widgets", object)
			return nil
		})
	}
	expect.NoError(b, creates.Wait())
}

// drain reads an answer, of a watch until its initial events are sent.
func drain(b *testing.B, s *server, r request) {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.url+r.path, nil)
	expect.NoError(b, err)
	req.Header.Set("Accept", r.accept)
	req.Header.Set("Accept-Encoding", r.encoding)
	response, err := s.http.Do(req)
	expect.NoError(b, err)
	defer response.Body.Close()
	buffer, tail, n := make([]byte, 64<<10), "", 0
	for {
		read, err := response.Body.Read(buffer)
		n += read
		if strings.Contains(r.path, "watch=true") {
			tail = (tail + string(buffer[:read]))
			tail = tail[max(0, len(tail)-1000):]
			if strings.Contains(tail, "initial-events-end") {
				return
			}
		}
		if err == io.EOF {
			break
		}
		expect.NoError(b, err)
	}
	b.SetBytes(int64(n))
}

// randomText returns text of 2 kB that compresses as custom resources do: to about a quarter.
func randomText() string {
	var text strings.Builder
	for text.Len() < 2000 {
		fmt.Fprintf(&text, "%s%d ", []string{"name", "container", "image", "status", "observed", "replicas", "message"}[rand.IntN(7)], rand.IntN(500))
	}
	return text.String()
}
