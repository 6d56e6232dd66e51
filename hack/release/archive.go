// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// file is an entry of an archive.
type file struct {
	// name has slashes.
	name string
	mode int64
	data []byte
}

// baseName begins the names of a binary's files, before their extensions.
func (r *release) baseName(p platform) string {
	return fmt.Sprintf("annex_%s_%s_%s", r.version, p.os, p.architecture)
}

func (r *release) archiveName(p platform) string {
	if p.os == "windows" {
		return r.baseName(p) + ".zip"
	}
	return r.baseName(p) + ".tar.gz"
}

// completion makes kubectl complete the plugin's arguments. It is no link to annex, which krew would not unpack.
const completion = "#!/bin/sh\nexec kubectl-annex __complete \"$@\"\n"

func (r *release) writeArchive(dir string, b binary) error {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return err
	}
	files, write := []file{{"LICENSE", 0o644, license}, {b.program(), 0o755, program}}, writeTarGz
	if b.os == "windows" {
		write = writeZip
	} else {
		files = append(files, file{"kubectl_complete-annex", 0o755, []byte(completion)})
	}
	return create(filepath.Join(dir, r.archiveName(b.platform)), func(w io.Writer) error { return write(w, r.time, files) })
}

// create writes a file of the release.
func create(path string, write func(io.Writer) error) (err error) {
	created, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, created.Close()) }()
	if err := write(created); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

func writeTarGz(w io.Writer, modified time.Time, files []file) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(compressed, modified, files), compressed.Close())
}

func writeTar(w io.Writer, modified time.Time, files []file) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		// Without an owner: extracted files belong to the user that extracts them.
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: modified, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}

func writeZip(w io.Writer, modified time.Time, files []file) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(os.FileMode(f.mode))
		entry, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}
