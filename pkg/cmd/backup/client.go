// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/backup"
)

// A part is requested again after a transient error.
const (
	attempts   = 5
	firstPause = 500 * time.Millisecond
)

var errInterrupted = errors.New("interrupted")

// definitionsPath is the path of CustomResourceDefinitions, which are read as raw JSON:
// the server may know more fields than the types here.
const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

type client struct {
	hosting hostingclient.HostingV1alpha1Interface
	rest    restclient.Interface
	// pause is the wait after the first failure.
	pause time.Duration
}

func connect(ctx context.Context, options *login.Options) (*client, error) {
	clients, err := options.ConnectAnnex(ctx, "annex-backup")
	if err != nil {
		return nil, err
	}
	hosting := clients.Annex.HostingV1alpha1()
	return &client{hosting: hosting, rest: hosting.RESTClient(), pause: firstPause}, nil
}

// readPart reads a complete part of a backup of a Store or a HostedResource.
func (c *client) readPart(ctx context.Context, kind, name string, first backup.Header, after string) (part []byte, header backup.Header, err error) {
	err = c.again(ctx, func() error {
		request := c.rest.Post().Resource(kind).Name(name).SubResource("backup").SetHeader("Accept", "*/*")
		if after != "" {
			request = request.Param("revision", strconv.FormatInt(first.Revision, 10)).Param("data", first.Data).Param("continue", after)
		}
		if part, err = login.Raw(request.Do(ctx)); err != nil {
			return err
		}
		header, _, err = readRecords(bytes.NewReader(part), func(backup.Record) error { return nil })
		return err
	})
	return part, header, err
}

func readRecords(in io.Reader, each func(backup.Record) error) (backup.Header, backup.Trailer, error) {
	reader, err := backup.NewReader(in)
	if err != nil {
		return backup.Header{}, backup.Trailer{}, err
	}
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return reader.Header(), reader.Trailer(), nil
		}
		if err == nil {
			err = each(record)
		}
		if err != nil {
			return reader.Header(), reader.Trailer(), err
		}
	}
}

// writePart writes a part of a resource to a Store, or only checks it.
func (c *client) writePart(ctx context.Context, store, resource string, part []byte, options backup.Options) (result backup.Result, err error) {
	err = c.again(ctx, func() error {
		request := c.rest.Post().Resource("stores").Name(store).SubResource("restore").Param("resource", resource).
			SetHeader("Content-Type", "application/octet-stream").Body(part)
		if options.Check {
			request = request.Param("check", "true")
		}
		if options.SkipUnreadable {
			request = request.Param("skipUnreadable", "true")
		}
		answer, err := login.Raw(request.Do(ctx))
		if err != nil {
			return err
		}
		return json.Unmarshal(answer, &result)
	})
	return result, err
}

// definition reads a CustomResourceDefinition, or returns nil if there is none.
func (c *client) definition(ctx context.Context, name string) ([]byte, error) {
	found, err := login.Raw(c.rest.Get().AbsPath(definitionsPath, name).Do(ctx))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read customresourcedefinition %s: %w", name, err)
	}
	return found, nil
}

// hosted reads a HostedResource, or returns nil if there is none.
func (c *client) hosted(ctx context.Context, name string) (*hostingv1alpha1.HostedResource, error) {
	found, err := c.hosting.HostedResources().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read hostedresource %s: %w", name, err)
	}
	return found, nil
}

// again retries on transient errors.
func (c *client) again(ctx context.Context, try func() error) error {
	backoff := wait.Backoff{Duration: c.pause, Factor: 2, Steps: attempts}
	err := retry.OnError(backoff, func(err error) bool { return ctx.Err() == nil && passes(err) }, try)
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// passes reports whether an error is transient.
func passes(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
	}
	return !errors.Is(err, backup.ErrNewer)
}
