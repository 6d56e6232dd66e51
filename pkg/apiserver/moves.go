// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/move"
)

// newMover returns the Mover of a resource between two Stores. config has everything except the
// Stores. A Store that is lost has an empty name.
func (c CompletedConfig) newMover(from, to string, config move.Config) (*move.Mover, error) {
	etcds := c.moved(config.Resource)
	var err error
	if config.From, err = etcds.end(from, config.Resource); err != nil {
		return nil, err
	}
	if config.To, err = etcds.end(to, config.Resource); err != nil {
		return nil, err
	}
	config.CopyDictionaries = func(ctx context.Context) error {
		restored, err := etcds.Target(to)
		if err != nil {
			return err
		}
		return restored.CopyDictionaries(ctx, config.Resource, config.From.KV, config.From.Prefix)
	}
	return move.New(config), nil
}

// newImporter returns the Importer of a resource from the main cluster into a Store. config has everything
// except the Store.
func (c CompletedConfig) newImporter(to string, config move.Config) (*move.Importer, error) {
	var err error
	if config.To, err = c.moved(config.Resource).end(to, config.Resource); err != nil {
		return nil, err
	}
	return move.NewImporter(config), nil
}

// newExporter returns the Exporter of a resource from a Store to the main cluster. config has
// everything except the Store.
func (c CompletedConfig) newExporter(from string, config move.Config) (*move.Exporter, error) {
	var err error
	if config.From, err = c.moved(config.Resource).end(from, config.Resource); err != nil {
		return nil, err
	}
	return move.NewExporter(config), nil
}

// moved returns the etcds of a resource that is moved.
func (c CompletedConfig) moved(resource schema.GroupResource) backups {
	etcds := c.newBackups()
	etcds.compress = c.router.IsCompressed(resource)
	return etcds
}

// end returns a resource in a Store, an empty one without a name.
func (b backups) end(name string, resource schema.GroupResource) (move.End, error) {
	if name == "" {
		return move.End{}, nil
	}
	store, err := b.available(name)
	if err != nil {
		return move.End{}, err
	}
	return move.End{
		KV: store.Client().KV, Watcher: store.Client().Watcher, Prefix: store.Prefix(),
		Transformer: b.stored(name, store, resource),
	}, nil
}
