// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Release writes what a release of annex publishes: archives of the binary for each platform with their SBOMs, the
// image, the chart, the manifest of the kubectl plugin for krew, and the checksums of all. The files depend on the
// commit, the version and the version of Go alone, not on the machine, the folder or the time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var r release
	var seconds int64
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.source, "source", filepath.Join("..", ".."), "the top of the repository")
	flags.StringVar(&r.out, "out", "", "the folder to write, which must not exist")
	flags.StringVar(&r.version, "version", "", "the version, for example v0.1.0")
	flags.StringVar(&r.commit, "commit", "", "the commit")
	flags.Int64Var(&seconds, "time", 0, "the time of the commit, in seconds since the epoch")
	flags.StringVar(&r.ldflags, "ldflags", "", "the arguments of the linker")
	imageOf := flags.String("image-of", "", "write the image for this architecture only, and nothing else")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r.time = time.Unix(seconds, 0).UTC()
	// go build runs in source.
	for _, path := range []*string{&r.source, &r.out} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	if !versions.MatchString(r.version) {
		return fmt.Errorf("--version %q: want one such as v0.1.0", r.version)
	}
	wanted, write := platforms, r.writeAll
	if *imageOf != "" {
		wanted, write = []platform{{"linux", *imageOf}}, r.writeImage
	}
	return r.whole(func(dir, scratch string) error {
		binaries, err := r.build(ctx, wanted, scratch)
		if err != nil {
			return err
		}
		return write(dir, scratch, binaries)
	})
}

// release is the version that is written.
type release struct {
	source, out, version, commit, ldflags string
	// time is the modification time of all files in archives.
	time time.Time
}

// whole creates r.out with what write writes into dir, or not at all. scratch is a folder that is removed.
func (r *release) whole(write func(dir, scratch string) error) (err error) {
	if _, err := os.Lstat(r.out); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--out %q: name a folder that does not exist", r.out)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(r.out), ".release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	dir := filepath.Join(scratch, "out")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := write(dir, scratch); err != nil {
		return err
	}
	return os.Rename(dir, r.out)
}

func (r *release) writeAll(dir, scratch string, binaries []binary) error {
	for _, b := range binaries {
		if err := errors.Join(r.writeArchive(dir, b), r.writeSBOM(dir, b)); err != nil {
			return err
		}
	}
	if err := r.writeImage(dir, scratch, binaries); err != nil {
		return err
	}
	if err := r.writeChart(dir); err != nil {
		return err
	}
	if err := r.writeKrewManifest(dir, binaries); err != nil {
		return err
	}
	return writeChecksums(dir)
}
