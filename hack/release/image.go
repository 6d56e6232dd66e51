// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageRepository equals the one in artifacts/deploy and the chart.
const imageRepository = "ghcr.io/annex-dev/annex"

// user is unprivileged. The root file system may be read-only; data is in a volume.
const user = "65532:65532"

// writeImage writes the image for the architectures of the binaries for Linux, as an archive of an OCI layout. It has
// only annex and the certificates of public authorities: no base, shell or libraries.
func (r *release) writeImage(dir, scratch string, binaries []binary) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		if b.os != "linux" {
			continue
		}
		image, err := r.image(b)
		if err != nil {
			return fmt.Errorf("create the image for %s: %w", b.architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.os, Architecture: b.architecture}},
		})
	}
	index = mutate.Annotations(index, r.annotations()).(v1.ImageIndex)
	written, err := layout.Write(filepath.Join(scratch, "image"), empty.Index)
	if err != nil {
		return err
	}
	// containerd and what imports with it, such as kind and k3d, names the image by the first, others by the second.
	names := map[string]string{"io.containerd.image.name": imageRepository + ":" + r.version, "org.opencontainers.image.ref.name": r.version}
	if err := written.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	files, err := readFolder(string(written), "")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("annex_%s_image.tar", r.version)
	return create(filepath.Join(dir, name), func(w io.Writer) error { return writeTar(w, r.time, files) })
}

func (r *release) image(b binary) (v1.Image, error) {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	files := []file{{"annex", 0o755, program}, {"etc/ssl/certs/ca-certificates.crt", 0o644, authorities()}}
	if err := writeTar(&content, r.time, files); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make release", Comment: "annex and public certificate authorities"},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.os, b.architecture, v1.Time{Time: r.time}
	config.Config = v1.Config{
		User: user, Entrypoint: []string{"/annex"}, ExposedPorts: map[string]struct{}{"7443/tcp": {}}, Labels: r.annotations(),
	}
	return mutate.ConfigFile(image, config)
}

// annotations returns the annotations that the OCI image specification predefines.
func (r *release) annotations() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": "annex", prefix + "description": "An aggregated API server for custom resources",
		prefix + "source": "https://github.com/annex-dev/annex", prefix + "licenses": "Apache-2.0",
		prefix + "version": r.version, prefix + "revision": r.commit, prefix + "created": r.time.Format("2006-01-02T15:04:05Z"),
	}
}

// authorities returns Mozilla's certificate authorities, to verify etcds and webhooks with public certificates. Those that are trusted with
// conditions, which a file cannot express, are missing.
func authorities() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return all.Bytes()
}

// readFolder returns the files of a folder in the order of their names, with a prefix.
func readFolder(dir, prefix string) ([]file, error) {
	var files []file
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, file{strings.TrimPrefix(prefix+"/"+filepath.ToSlash(name), "/"), 0o644, data})
		return err
	})
	return files, err
}
