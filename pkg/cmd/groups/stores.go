// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/diagnose"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/scheduler"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

// share is what a Store gets of a group.
type share struct {
	resources []string
	bytes     int64
}

// planStores prints the Stores that the resources of a group go to, and returns what prevents that.
func (s *session) planStores(ctx context.Context, g *diagnose.Group, store string) ([]string, error) {
	cluster, err := scheduler.ReadCluster(ctx, s.annex)
	if unreachable(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the Stores: %w", err)
	}
	shares, obstacles := map[string]*share{}, []string{}
	for _, r := range g.Resources {
		name := r.Name + "." + g.Name
		hosted := &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for i := range cluster.Resources {
			if cluster.Resources[i].Name == name {
				hosted = &cluster.Resources[i]
			}
		}
		target, why := choose(cluster.Decide(hosted), store)
		if why != "" {
			obstacles = append(obstacles, why)
			continue
		}
		if shares[target] == nil {
			shares[target] = &share{}
		}
		shares[target].resources = append(shares[target].resources, r.Name)
		if r.Bytes != nil {
			shares[target].bytes += *r.Bytes
		}
	}
	slices.Sort(obstacles)
	if err := s.printStores(cluster.Stores, shares); err != nil {
		return nil, err
	}
	return slices.Compact(obstacles), nil
}

// choose returns a Store, or why there is none.
func choose(decision framework.Decision, store string) (target, why string) {
	if store == "" {
		if best, fits := decision.Best(); fits {
			return best.Store, ""
		}
		return "", decision.String()
	}
	for _, result := range decision {
		switch {
		case result.Store == store && result.Fits():
			return store, ""
		case result.Store == store:
			return "", "Store " + store + " " + result.Message()
		}
	}
	return "", "there is no Store " + store
}

func (s *session) printStores(stores []hostingv1alpha1.Store, shares map[string]*share) error {
	if len(shares) == 0 {
		return nil
	}
	w := newTable(s.out)
	fmt.Fprintln(w, "STORE\tRESOURCES\tBEFORE COMPRESSION\tFREE")
	var tight []string
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		free := table.Unknown
		if left := freeIn(stores, name); left != nil {
			free = table.Bytes(*left)
			if *left < shares[name].bytes {
				tight = append(tight, name)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, strings.Join(shares[name].resources, ","), table.Bytes(shares[name].bytes), free)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the plan: %w", err)
	}
	for _, name := range tight {
		s.print("Store %s has less space than the objects have before compression. If it is too small, the move fails and is undone.", name)
	}
	s.print("")
	return nil
}

// freeIn returns what is left of the quota of a Store, or nil if that is not known.
func freeIn(stores []hostingv1alpha1.Store, name string) *int64 {
	for i := range stores {
		status := stores[i].Status
		if stores[i].Name == name && status.Quota != nil && status.SizeInUse != nil {
			return new(max(0, status.Quota.Value()-status.SizeInUse.Value()))
		}
	}
	return nil
}
