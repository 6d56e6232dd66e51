// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const pageSize = 500

// pages reads all objects of a resource in the order of their keys.
type pages struct {
	objects dynamic.ResourceInterface
	page    []unstructured.Unstructured
	next    string
	// begun is whether the first page was read.
	begun bool
	last  string
}

func newPages(client dynamic.Interface, resource schema.GroupVersionResource) *pages {
	return &pages{objects: client.Resource(resource)}
}

// peek returns the next object, nil after the last.
func (p *pages) peek(ctx context.Context) (*unstructured.Unstructured, error) {
	for len(p.page) == 0 {
		if p.begun && p.next == "" {
			return nil, nil
		}
		if err := p.read(ctx); err != nil {
			return nil, err
		}
	}
	return &p.page[0], nil
}

func (p *pages) read(ctx context.Context) error {
	list, err := p.objects.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: p.next})
	if token := continueAfter(err); token != "" {
		// The first page is too old. What changed since then is in the watch.
		list, err = p.objects.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: token})
	}
	if err != nil {
		return fmt.Errorf("list objects: %w", err)
	}
	for i := range list.Items {
		current := keyOf(&list.Items[i]).String()
		if current <= p.last {
			return fmt.Errorf("list objects: %s follows %s, so they are not in the order of their keys", current, p.last)
		}
		p.last = current
	}
	p.begun, p.page, p.next = true, list.Items, list.GetContinue()
	return nil
}

// continueAfter returns the token with which a list continues at the current revision, if its
// own is compacted.
func continueAfter(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

func (p *pages) pop() { p.page = p.page[1:] }

// eachPair calls visit for every key of both sides. One of the objects may be nil.
func eachPair(ctx context.Context, annex, main *pages, visit func(annex, main *unstructured.Unstructured) error) error {
	for {
		inAnnex, err := annex.peek(ctx)
		if err != nil {
			return fmt.Errorf("read annex: %w", err)
		}
		inMain, err := main.peek(ctx)
		if err != nil {
			return fmt.Errorf("read the main cluster's copy: %w", err)
		}
		if inAnnex == nil && inMain == nil {
			return nil
		}
		if inAnnex != nil && inMain != nil {
			switch first, second := keyOf(inAnnex).String(), keyOf(inMain).String(); {
			case first < second:
				inMain = nil
			case first > second:
				inAnnex = nil
			}
		}
		if err := visit(inAnnex, inMain); err != nil {
			return err
		}
		if inAnnex != nil {
			annex.pop()
		}
		if inMain != nil {
			main.pop()
		}
	}
}
