// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/backup"
)

// restorer restores resources into a running annex.
type restorer struct {
	annex   *client
	archive *archive
	wanted  []*saved
	// stores has the target Store of each resource.
	stores map[string]string
	errOut io.Writer
	// restored counts the readable objects of each resource.
	restored map[string]int64
	// unreadable are the skipped objects.
	unreadable unreadable
}

// admit chooses the target Store of a resource, and checks that its definition does not
// exist.
func (r *restorer) admit(ctx context.Context, resource *saved, store string) error {
	definition, err := r.annex.definition(ctx, resource.name)
	if err != nil {
		return err
	}
	if definition != nil {
		return fmt.Errorf("customresourcedefinition %s exists: a backup is not merged with a resource that is served", resource.name)
	}
	hosted, err := r.waitSettled(ctx, resource.name)
	if err != nil {
		return err
	}
	placed := ""
	if hosted != nil {
		if placed = hosted.Spec.StoreName; placed == "" {
			return fmt.Errorf("hostedresource %s exists and has no Store: delete it, or set its spec.storeName", resource.name)
		}
	}
	switch {
	case store != "" && placed != "" && store != placed:
		return fmt.Errorf("--store %s: hostedresource %s exists and names Store %s: delete it, or restore to that one", store, resource.name, placed)
	case store != "":
	case placed != "":
		store = placed
	case resource.hosted != nil && resource.hosted.Spec.StoreName != "":
		store = resource.hosted.Spec.StoreName
	default:
		store = r.archive.header.Store
	}
	r.stores[resource.name] = store
	return nil
}

// waitSettled returns the HostedResource, or nil. It waits until an automanaged one,
// whose definition is gone, is deleted.
func (r *restorer) waitSettled(ctx context.Context, name string) (*hostingv1alpha1.HostedResource, error) {
	var found *hostingv1alpha1.HostedResource
	err := wait.PollUntilContextTimeout(ctx, pollInterval, settledTimeout, true, func(ctx context.Context) (bool, error) {
		var err error
		found, err = r.annex.hosted(ctx, name)
		return found == nil || found.Labels[hostingv1alpha1.AutomanagedLabel] != "true", err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil, fmt.Errorf("hostedresource %s still exists, though its definition is gone: is annex's leader running?", name)
	}
	return found, err
}

// check reports an error if something cannot be restored.
func (r *restorer) check(ctx context.Context, skipUnreadable bool) error {
	results, err := r.send(ctx, "Checking", backup.Options{Check: true, SkipUnreadable: skipUnreadable})
	if err != nil {
		return err
	}
	r.restored = map[string]int64{}
	for _, resource := range r.wanted {
		result, store := results[resource.name], r.stores[resource.name]
		if result.Objects == 0 && len(result.Unreadable) > 0 {
			return fmt.Errorf("none of the %d objects of %s can be read: is their encryption key missing?", len(result.Unreadable), resource.name)
		}
		if others := result.Present - result.Found; others > 0 {
			return fmt.Errorf("store %s has objects of %s that are not in the backup (%d)", store, resource.name, others)
		}
		r.restored[resource.name] = result.Objects
		r.unreadable.add(result.Unreadable...)
	}
	return nil
}

// send sends all parts and returns the result of each resource.
func (r *restorer) send(ctx context.Context, doing string, options backup.Options) (map[string]backup.Result, error) {
	var total int64
	for _, resource := range r.wanted {
		total += resource.objects
	}
	bar := newProgress(r.errOut, doing, total)
	defer bar.end()
	var sent, size int64
	results := map[string]backup.Result{}
	err := r.archive.parts(r.wanted, func(resource *saved, part []byte, count, bytes int64) error {
		got, err := r.annex.writePart(ctx, r.stores[resource.name], resource.name, part, options)
		if err != nil {
			return fmt.Errorf("restore %s to Store %s: %w%s", resource.name, r.stores[resource.name], err, advice(err))
		}
		sum := results[resource.name]
		sum.Objects, sum.Found, sum.Present = sum.Objects+got.Objects, sum.Found+got.Found, got.Present
		sum.Unreadable = append(sum.Unreadable, got.Unreadable...)
		results[resource.name] = sum
		sent, size = sent+count, size+bytes
		bar.show(sent, size)
		return nil
	})
	return results, err
}

// advice names the flag that helps with an error.
func advice(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return "; choose another with --store"
	case apierrors.IsInvalid(err):
		return "; --skip-unreadable skips it"
	}
	return ""
}
