// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metadatainformers follows every object that annex serves, and keeps as
// little of each as garbage collection and quotas need.
//
// Informers of client-go would keep a PartialObjectMetadata of each object, and
// three goroutines for each resource. Here a reflector feeds a store that is only
// a map of small structs, and tells handlers of changes in what it keeps: the
// renewal of a Lease, for one, is none.
//
// Which resources there are is not left to discovery, which may be behind without
// saying so: definitions of custom resources say which of those there are, and
// discovery only which kinds are compiled in. Custom resources are read in the
// version that they are stored in, so that a broken conversion webhook is in the
// way of only those objects that were stored before that version was chosen.
//
// A resource that cannot be read holds up no other. Who needs to know about all
// asks which are current.
package metadatainformers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	name = "metadata-informers"

	// settlePeriod is how long others wait for a resource that cannot be read.
	settlePeriod = 10 * time.Second
	settlePoll   = 50 * time.Millisecond

	// firstReadsAtOnce bounds how many resources are read for the first time at the
	// same time: for a custom resource the server makes a cache then.
	firstReadsAtOnce = 16

	// lingerPeriod is how long a resource whose definition is gone is followed on.
	// Its objects went before the definition did, but on another watch: without
	// them gone in the right way, what they owned would stay for ever.
	lingerPeriod = 10 * time.Second
	lingerPoll   = 200 * time.Millisecond

	// rediscoverAfter is how long after a compiled-in resource was not found
	// discovery is asked again: it listed what was a custom resource just then.
	rediscoverAfter = time.Second
)

// errNothingDiscovered is what discovery without any compiled-in resource is taken
// for: the answer of a server that is not ready.
var errNothingDiscovered = errors.New("discovery lists no compiled-in resources")

// DiscoverFunc lists all resources of the server, in all versions.
type DiscoverFunc func(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)

// Config holds what Informers depend on.
type Config struct {
	AnnexMetadata metadata.Interface
	Discover      DiscoverFunc
	// CustomResourceDefinitions says which custom resources there are.
	CustomResourceDefinitions apiextensionsinformers.CustomResourceDefinitionInformer
	// Stored says how many objects etcd holds of a custom resource. Those without
	// any are not followed until UsageChanged tells of the first. Without it all are.
	Stored func(resource schema.GroupResource) (objects int64, known bool)
	// Synced is done once Stored may be asked.
	Synced []cache.DoneChecker
}

// Handler is told what happens to objects. Calls for one resource come one after
// the other and in order, those for different resources at the same time. They
// come after the change can be read from Informers, and must not wait for anything.
type Handler interface {
	Added(resource Resource, object *Object)
	// Updated is called only if something changed that is kept.
	Updated(resource Resource, before, after *Object)
	Deleted(resource Resource, object *Object)
	// Synced says that all objects were added that there were. It is called once,
	// until the resource is dropped.
	Synced(resource Resource)
	// Dropped says that the resource is not served any more. What became of the
	// objects that it had, if any, is not known.
	Dropped(resource Resource, objects iter.Seq[*Object])
}

// Informers follow all resources, for one term.
type Informers struct {
	config      Config
	handlers    []Handler
	definitions []cache.DoneChecker
	queue       *framework.Queue[struct{}]
	slots       chan struct{}
	settled     done
	// start runs a follower; Run sets it.
	start func(*follower)

	// Only the queue's worker uses these two.
	compiledIn map[schema.GroupResource]served
	stale      atomic.Bool

	mu         sync.RWMutex
	discovered bool
	followers  map[schema.GroupResource]*follower
	kinds      map[schema.GroupVersionKind]Resource
}

// New returns Informers that follow nothing before Run.
func New(config Config) (*Informers, error) {
	i := &Informers{
		config:    config,
		slots:     make(chan struct{}, firstReadsAtOnce),
		settled:   make(done),
		followers: map[schema.GroupResource]*follower{},
		kinds:     map[schema.GroupVersionKind]Resource{},
	}
	i.queue = framework.NewQueue(framework.QueueConfig[struct{}]{Name: name, Reconcile: i.reconcile})
	again := func() { i.queue.Add(struct{}{}) }
	var err error
	i.definitions, err = framework.AddEventHandlers(framework.Source{
		Name:     "definitions",
		Informer: config.CustomResourceDefinitions.Informer(),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { again() },
			UpdateFunc: func(_, _ any) { again() },
			DeleteFunc: func(any) { again() },
		},
	})
	i.definitions = append(i.definitions, config.Synced...)
	again()
	return i, err
}

// AddHandler has all changes told. It is called before Run.
func (i *Informers) AddHandler(handler Handler) { i.handlers = append(i.handlers, handler) }

// Run follows all resources until ctx is done, if there is a handler to tell. It
// returns once all its goroutines have.
func (i *Informers) Run(ctx context.Context) {
	if len(i.handlers) == 0 {
		// The queue ends by running, and is not to do anything.
		done, cancel := context.WithCancel(ctx)
		cancel()
		i.queue.Run(done, 1)
		return
	}
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), name))
	var running sync.WaitGroup
	defer running.Wait()
	i.start = func(f *follower) {
		ctx, cancel := context.WithCancel(ctx)
		f.cancel = cancel
		running.Go(func() {
			defer cancel()
			f.run(ctx, i.config.AnnexMetadata, i.slots)
		})
	}
	running.Go(func() {
		// It fails only when ctx is done.
		if wait.PollUntilContextCancel(ctx, settlePoll, true, func(context.Context) (bool, error) { return i.isSettled(), nil }) == nil {
			close(i.settled)
		}
	})
	i.queue.Run(ctx, 1, i.definitions...)
}

// reconcile follows what is served and nothing else.
func (i *Informers) reconcile(ctx context.Context, _ struct{}) (framework.Result, error) {
	wanted, err := i.wanted(ctx)
	if err != nil {
		return framework.Result{}, err
	}
	var result framework.Result
	var obsolete, fresh []*follower
	kinds := map[schema.GroupVersionKind]Resource{}
	for _, item := range wanted {
		for _, version := range item.versions {
			kinds[schema.GroupVersionKind{Group: item.Group, Version: version, Kind: item.Kind}] = item.Resource
		}
	}
	i.mu.Lock()
	i.discovered, i.kinds = true, kinds
	for resource, f := range i.followers {
		item, found := wanted[resource]
		switch {
		case found && item.Resource == f.Resource && item.definition == f.definition:
			delete(wanted, resource)
		case !found && f.lingers():
			result.RequeueAfter = lingerPoll
		default:
			delete(i.followers, resource)
			obsolete = append(obsolete, f)
		}
	}
	for resource, item := range wanted {
		f := newFollower(item, i.handlers)
		f.notFound = func() { i.notFound(item) }
		if i.config.Stored != nil && item.definition != "" {
			f.stored = func() (int64, bool) { return i.config.Stored(resource) }
		}
		i.followers[resource] = f
		fresh = append(fresh, f)
	}
	i.mu.Unlock()

	for _, f := range obsolete {
		f.stop()
	}
	for _, f := range fresh {
		i.start(f)
	}
	return result, nil
}

// lingers reports whether a resource that is not served any more is followed on.
func (f *follower) lingers() bool {
	if f.unwanted.IsZero() {
		f.unwanted = time.Now()
	}
	return f.objects.count(metav1.NamespaceAll) > 0 && time.Since(f.unwanted) < lingerPeriod
}

// wanted are all resources that are served.
func (i *Informers) wanted(ctx context.Context) (map[schema.GroupResource]served, error) {
	definitions, err := i.config.CustomResourceDefinitions.Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	if stale := i.stale.Swap(false); stale || i.compiledIn == nil {
		i.compiledIn = nil // until discovery answers
		_, lists, err := i.config.Discover(ctx)
		if err != nil {
			return nil, fmt.Errorf("discover compiled-in resources: %w", err)
		}
		compiledIn, err := fromDiscovery(lists, definedBy(definitions))
		if err != nil {
			return nil, err
		}
		if len(compiledIn) == 0 {
			return nil, errNothingDiscovered
		}
		i.compiledIn = compiledIn
	}
	wanted := make(map[schema.GroupResource]served, len(i.compiledIn)+len(definitions))
	for _, crd := range definitions {
		if item, ok := fromDefinition(crd); ok {
			wanted[item.GroupResource()] = item
		}
	}
	for resource, item := range i.compiledIn {
		wanted[resource] = item
	}
	return wanted, nil
}

// notFound has discovery asked again after it listed what is not there.
func (i *Informers) notFound(item served) {
	if item.definition != "" {
		return // the definition's end is an event of its own
	}
	i.stale.Store(true)
	i.queue.AddAfter(struct{}{}, rediscoverAfter)
}

// UsageChanged has a resource followed if it has objects now.
func (i *Informers) UsageChanged(resource schema.GroupResource) {
	if f := i.follower(resource); f != nil {
		f.wake()
	}
}

// AllUsageChanged is UsageChanged for all resources.
func (i *Informers) AllUsageChanged() {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, f := range i.followers {
		f.wake()
	}
}

// isSettled reports whether nothing is gained by waiting longer.
func (i *Informers) isSettled() bool {
	return i.every((*follower).settled)
}

// HasSynced reports whether all objects of all resources are known.
func (i *Informers) HasSynced() bool {
	return i.every(func(f *follower) bool { return f.state().Synced })
}

func (i *Informers) every(is func(*follower) bool) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if !i.discovered {
		return false
	}
	for _, f := range i.followers {
		if !is(f) {
			return false
		}
	}
	return true
}

// Settled is done once all resources are synced but those that could not be read
// for a while.
func (i *Informers) Settled() cache.DoneChecker { return i.settled }

// done is a cache.DoneChecker.
type done chan struct{}

// Name implements cache.DoneChecker.
func (done) Name() string { return name }

// Done implements cache.DoneChecker.
func (d done) Done() <-chan struct{} { return d }

// States are those of all resources, in a stable order.
func (i *Informers) States() []State {
	i.mu.RLock()
	defer i.mu.RUnlock()
	states := make([]State, 0, len(i.followers))
	for _, f := range i.followers {
		states = append(states, f.state())
	}
	slices.SortFunc(states, func(a, b State) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.GroupVersionResource.Resource, b.GroupVersionResource.Resource))
	})
	return states
}

// State is that of one resource, and false if it is not served.
func (i *Informers) State(resource schema.GroupResource) (State, bool) {
	if f := i.follower(resource); f != nil {
		return f.state(), true
	}
	return State{}, false
}

// ResourceFor returns the resource of a kind, and false if the kind is not served
// in that version.
func (i *Informers) ResourceFor(kind schema.GroupVersionKind) (Resource, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	resource, ok := i.kinds[kind]
	return resource, ok
}

// Get returns an object, or nil if it is not known.
func (i *Informers) Get(resource schema.GroupResource, namespace, name string) *Object {
	if f := i.follower(resource); f != nil {
		return f.objects.get(namespace, name)
	}
	return nil
}

// Find returns the object with a name and UID in whatever namespace it is, or nil.
func (i *Informers) Find(resource schema.GroupResource, name string, uid types.UID) *Object {
	if f := i.follower(resource); f != nil {
		return f.objects.find(name, uid)
	}
	return nil
}

// Count is how many objects of a resource there are in a namespace, or in all with
// metav1.NamespaceAll. They are all only if the resource is synced.
func (i *Informers) Count(resource schema.GroupResource, namespace string) int {
	if f := i.follower(resource); f != nil {
		return f.objects.count(namespace)
	}
	return 0
}

func (i *Informers) follower(resource schema.GroupResource) *follower {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.followers[resource]
}
