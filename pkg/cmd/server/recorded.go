// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"strings"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/datadir"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
)

// recordedEtcd returns the etcd that the data directory was used with, nil if annex may use any.
// It refuses to use the embedded etcd instead of an external one, or the reverse, before anything
// is created.
func recordedEtcd(o *options.Etcd, dir *datadir.Dir) (*datadir.Etcd, error) {
	recorded, err := dir.Etcd()
	if err != nil {
		return nil, fmt.Errorf("--data-dir %s: %w", dir.Path(), err)
	}
	external := recorded != nil && len(recorded.Servers) > 0
	switch {
	case recorded == nil || recorded.ID == o.LeaveEtcd:
		return nil, nil
	case external && o.Embedded():
		return nil, anotherEtcd(dir, recorded, "--etcd-servers is not set: set it")
	case !external && !o.Embedded():
		return nil, anotherEtcd(dir, recorded, "--etcd-servers names another one: remove it")
	}
	return recorded, nil
}

// checkEtcd returns an error if the etcd does not have the recorded objects. It is called before
// anything is written to that etcd.
func (s *storage) checkEtcd(ctx context.Context, dir *datadir.Dir, recorded *datadir.Etcd) error {
	if recorded == nil {
		return nil
	}
	id, err := stores.DefaultID(ctx, s.client, s.prefix)
	switch {
	case err != nil:
		return fmt.Errorf("--etcd-servers: %w", err)
	case id == recorded.ID:
		return nil
	case s.embedded != nil:
		return anotherEtcd(dir, recorded, "which is not what "+dir.EtcdDir()+" has: restore it, or correct --etcd-prefix")
	}
	return anotherEtcd(dir, recorded, "which --etcd-servers and --etcd-prefix do not lead to: correct them")
}

func anotherEtcd(dir *datadir.Dir, recorded *datadir.Etcd, problem string) error {
	where := "the embedded etcd"
	if len(recorded.Servers) > 0 {
		where = "the etcd at " + strings.Join(recorded.Servers, ",")
	}
	return fmt.Errorf("--data-dir %s: annex's objects are in %s, %s. To use another etcd on purpose, without them or after they were moved, see --leave-etcd: the ID is %s",
		dir.Path(), where, problem, recorded.ID)
}

func (s *storage) recordEtcd(dir *datadir.Dir) error {
	store, err := s.Stores.Get(hostingv1alpha1.DefaultStoreName)
	if err != nil {
		return err
	}
	mark := store.Snapshot().Mark
	if mark == nil {
		return nil // a full etcd may have none, and the next start tries again
	}
	used := &datadir.Etcd{ID: string(mark.UID)}
	if s.embedded == nil {
		used.Servers = s.endpoints
	}
	if err := dir.RecordEtcd(used); err != nil {
		return fmt.Errorf("--data-dir %s: record the etcd: %w", dir.Path(), err)
	}
	return nil
}
