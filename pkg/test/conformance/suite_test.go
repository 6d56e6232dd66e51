// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// entry runs one of upstream's functions.
type entry struct {
	shape shape
	// gateOff is a feature that some functions cannot be run with. Gates are global,
	// so these, and those that set gates themselves, run alone.
	gateOff featuregate.Feature
	alone   bool
	run     func(ctx context.Context, t *testing.T, s *subject)
	// notRaw gives the reason to skip the function without the watch cache, notCached with the
	// watch cache, and notCustom with custom resources.
	notRaw, notCached, notCustom string
}

// Upstream leaves the same functions out for its own watch cache.
const (
	fromMemory = "the watch cache answers from memory what the function makes fail while it is read from etcd"
	notPaged   = "the function wants pages at resource version 0, which the watch cache answers whole, as documented"
	progress   = "progress notifications are what the watch cache gets from etcd; its own watches have bookmarks"
	bookmarks  = "without the watch cache nothing sends bookmarks between events"
)

func plain(run func(context.Context, *testing.T, storage.Interface)) entry {
	return entry{run: func(ctx context.Context, t *testing.T, s *subject) { run(ctx, t, s) }}
}

func indexed(run func(context.Context, *testing.T, storage.Interface)) entry {
	e := plain(run)
	e.shape.indexed = true
	return e
}

// watchList is for functions that watch right after a write, with a gate of theirs.
func watchList(run func(context.Context, *testing.T, storage.Interface)) entry {
	return entry{alone: true, run: func(ctx context.Context, t *testing.T, s *subject) { run(ctx, t, synced{s, &sync.Map{}}) }}
}

func expiring(run func(context.Context, *testing.T, storage.Interface)) entry {
	e := plain(run)
	e.shape.shortLeases = true
	return e
}

func paged(run func(context.Context, *testing.T, storage.Interface, storagetesting.CallsValidation)) entry {
	// How many requests upstream's own store makes is not a matter of ours.
	anyCalls := func(*testing.T, uint64, uint64) {}
	return entry{run: func(ctx context.Context, t *testing.T, s *subject) { run(ctx, t, s, anyCalls) }}
}

func transformed(run func(context.Context, *testing.T, storagetesting.InterfaceWithPrefixTransformer)) entry {
	return entry{run: func(ctx context.Context, t *testing.T, s *subject) { run(ctx, t, s) }}
}

func (e entry) excusedFromCached(reason string) entry {
	e.notCached = reason
	return e
}

func enabled(feature featuregate.Feature) bool {
	return utilfeature.DefaultFeatureGate.Enabled(feature)
}

// suite is every function of upstream's that takes a *testing.T, by name.
var suite = map[string]entry{
	"RunTestCreate": {run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestCreate(ctx, t, s, s.checkStored)
	}},
	"RunTestCreateWithTTL":      expiring(storagetesting.RunTestCreateWithTTL),
	"RunTestCreateWithKeyExist": plain(storagetesting.RunTestCreateWithKeyExist),
	// Its object lives for a second only.
	"RunTestGet":                                        {alone: true, run: plain(storagetesting.RunTestGet).run},
	"RunTestUnconditionalDelete":                        plain(storagetesting.RunTestUnconditionalDelete),
	"RunTestConditionalDelete":                          plain(storagetesting.RunTestConditionalDelete),
	"RunTestDeleteWithSuggestion":                       plain(storagetesting.RunTestDeleteWithSuggestion),
	"RunTestDeleteWithSuggestionAndConflict":            plain(storagetesting.RunTestDeleteWithSuggestionAndConflict),
	"RunTestDeleteWithConflict":                         plain(storagetesting.RunTestDeleteWithConflict),
	"RunTestDeleteWithSuggestionOfDeletedObject":        plain(storagetesting.RunTestDeleteWithSuggestionOfDeletedObject),
	"RunTestValidateDeletionWithSuggestion":             plain(storagetesting.RunTestValidateDeletionWithSuggestion),
	"RunTestValidateDeletionWithOnlySuggestionValid":    plain(storagetesting.RunTestValidateDeletionWithOnlySuggestionValid),
	"RunTestPreconditionalDeleteWithSuggestion":         plain(storagetesting.RunTestPreconditionalDeleteWithSuggestion),
	"RunTestPreconditionalDeleteWithOnlySuggestionPass": plain(storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass),

	"RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError": {run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError(ctx, t, s, s.transformer.fail.Store)
	}},
	"RunTestDeleteExpectedTransformOrDecodeError": {run: func(ctx context.Context, t *testing.T, s *subject) {
		etcd3.TestOnlySetFatalOnDecodeError(t, false)
		storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, s, s.transformer.fail.Store)
		storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, s, s.codec.fail.Store)
	}},
	"RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError": {run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(ctx, t, s)
	}},

	"RunTestList": {run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestList(ctx, t, s, s.compact, s.cached, s.recorder)
	}},
	"RunTestConsistentList": {run: func(ctx context.Context, t *testing.T, s *subject) {
		const consistentReads = true
		storagetesting.RunTestConsistentList(ctx, t, s, s.increaseRV, s.cached, consistentReads, s.cached && enabled(features.ListFromCacheSnapshot))
	}},
	"RunTestGetListNonRecursive": {run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, s.increaseRV, s)
	}},
	"RunTestGetListRecursivePrefix":     plain(storagetesting.RunTestGetListRecursivePrefix),
	"RunTestListPaging":                 plain(storagetesting.RunTestListPaging),
	"RunTestListContinuation":           paged(storagetesting.RunTestListContinuation),
	"RunTestListPaginationRareObject":   paged(storagetesting.RunTestListPaginationRareObject),
	"RunTestListContinuationWithFilter": paged(storagetesting.RunTestListContinuationWithFilter),
	"RunTestListInconsistentContinuation": {notCached: notPaged, run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestListInconsistentContinuation(ctx, t, s, s.compact)
	}},
	"RunTestListResourceVersionMatch": transformed(storagetesting.RunTestListResourceVersionMatch),
	"RunTestNamespaceScopedList":      indexed(storagetesting.RunTestNamespaceScopedList),
	"RunTestGetListWithErrorAggregation": {notCached: fromMemory, run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestGetListWithErrorAggregation(ctx, t, unreliable{s}, errSynthetic)
	}},
	"RunTestGetListWithoutErrorAggregation": {
		gateOff:   features.AllowUnsafeMalformedObjectDeletion,
		notCached: fromMemory,
		run: func(ctx context.Context, t *testing.T, s *subject) {
			storagetesting.RunTestGetListWithoutErrorAggregation(ctx, t, s, errSynthetic)
		},
	},
	"RunTestCompactRevision": {run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestCompactRevision(ctx, t, s, s.increaseRV, s.compact)
	}},
	"RunTestStats": {run: func(ctx context.Context, t *testing.T, s *subject) {
		// Sizes are estimated for the watch cache's keys only.
		storagetesting.RunTestStats(ctx, t, s, s.codec, s.stored, s.cached && enabled(features.SizeBasedListCostEstimate))
	}},
	"RunTestKeySchema": {run: plain(storagetesting.RunTestKeySchema).run, notCustom: "its objects have no name, which a custom resource must have"},

	"RunTestGuaranteedUpdate": {run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestGuaranteedUpdate(ctx, t, s, s.checkStored)
	}},
	"RunTestGuaranteedUpdateWithTTL": expiring(storagetesting.RunTestGuaranteedUpdateWithTTL),
	// The suite adds a space between the transformer's prefix and the object, which JSON allows.
	"RunTestGuaranteedUpdateChecksStoredData":          {shape: shape{small: true}, run: transformed(storagetesting.RunTestGuaranteedUpdateChecksStoredData).run},
	"RunTestGuaranteedUpdateWithConflict":              plain(storagetesting.RunTestGuaranteedUpdateWithConflict),
	"RunTestGuaranteedUpdateWithSuggestionAndConflict": plain(storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict),
	"RunTestTransformationFailure": {
		gateOff:   features.AllowUnsafeMalformedObjectDeletion,
		notCached: fromMemory,
		run:       transformed(storagetesting.RunTestTransformationFailure).run,
	},

	"RunTestWatch": plain(storagetesting.RunTestWatch),
	"RunTestWatchFromZero": {run: func(ctx context.Context, t *testing.T, s *subject) {
		compact := s.compact
		if s.cached {
			compact = nil // upstream's word for a watch cache, which keeps a history of its own
		}
		storagetesting.RunTestWatchFromZero(ctx, t, s, compact)
	}},
	"RunTestDeleteTriggerWatch":                 plain(storagetesting.RunTestDeleteTriggerWatch),
	"RunTestWatchFromNonZero":                   plain(storagetesting.RunTestWatchFromNonZero),
	"RunTestDelayedWatchDelivery":               plain(storagetesting.RunTestDelayedWatchDelivery),
	"RunTestWatchError":                         transformed(storagetesting.RunTestWatchError).excusedFromCached(fromMemory),
	"RunTestWatchContextCancel":                 plain(storagetesting.RunTestWatchContextCancel),
	"RunTestWatcherTimeout":                     plain(storagetesting.RunTestWatcherTimeout),
	"RunTestWatchDeleteEventObjectHaveLatestRV": plain(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV),
	"RunTestWatchInitializationSignal":          plain(storagetesting.RunTestWatchInitializationSignal),
	"RunTestClusterScopedWatch": {
		shape: shape{clusterScoped: true, indexed: true},
		run:   plain(storagetesting.RunTestClusterScopedWatch).run,
	},
	"RunTestNamespaceScopedWatch": indexed(storagetesting.RunTestNamespaceScopedWatch),
	"RunTestWatchDispatchBookmarkEvents": {run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, s, s.cached)
	}},
	"RunTestOptionalWatchBookmarksWithCorrectResourceVersion": {notRaw: bookmarks, run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion(ctx, t, unhurried{s})
	}},
	"RunOptionalTestProgressNotify": {notCached: progress, run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunOptionalTestProgressNotify(ctx, t, s, s.increaseRV)
	}},
	"RunTestWatchWithUnsafeDelete": {notCached: fromMemory, run: func(ctx context.Context, t *testing.T, s *subject) {
		storagetesting.RunTestWatchWithUnsafeDelete(ctx, t, s, errSynthetic)
	}},
	"RunSendInitialEventsBackwardCompatibility": plain(storagetesting.RunSendInitialEventsBackwardCompatibility),
	"RunWatchSemantics":                         watchList(storagetesting.RunWatchSemantics),
	"RunWatchSemanticInitialEventsExtended":     watchList(storagetesting.RunWatchSemanticInitialEventsExtended),
	"RunWatchListMatchSingle":                   watchList(storagetesting.RunWatchListMatchSingle),
	"RunWatchErrorIsBlockingFurtherEvents":      transformed(storagetesting.RunWatchErrorIsBlockingFurtherEvents).excusedFromCached(fromMemory),
}
