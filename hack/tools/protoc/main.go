// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command protoc takes the place of the Protocol Buffers compiler where go-to-protobuf runs
// it, so that `make generate` needs only Go: protoc -I DIRECTORY... --gogo_out=DIRECTORY FILE...
// compiles the files and generates Go with gogo's plugin, which is built in.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	gogoproto "github.com/gogo/protobuf/proto"
	plugin "github.com/gogo/protobuf/protoc-gen-gogo/plugin"
	"github.com/gogo/protobuf/vanity/command"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "protoc: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var imports []string
	flag.Func("I", "a `directory` of imported files (repeatable)", func(directory string) error {
		imports = append(imports, directory)
		return nil
	})
	out := flag.String("gogo_out", "", "the `directory` of the generated files")
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		return errors.New("usage: protoc -I DIRECTORY... --gogo_out=DIRECTORY FILE...")
	}
	request := &pluginpb.CodeGeneratorRequest{
		// The generated files get the names of their sources.
		Parameter: proto.String("paths=source_relative"),
	}
	for _, file := range flag.Args() {
		name, err := nameIn(imports, file)
		if err != nil {
			return err
		}
		request.FileToGenerate = append(request.FileToGenerate, name)
	}
	if err := compile(ctx, imports, request); err != nil {
		return err
	}
	files, err := generate(request)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(*out, file.GetName()), []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// nameIn returns the name by which other files import a file.
func nameIn(imports []string, file string) (string, error) {
	for _, directory := range imports {
		if name, err := filepath.Rel(directory, file); err == nil && filepath.IsLocal(name) {
			return filepath.ToSlash(name), nil
		}
	}
	return "", fmt.Errorf("%s is not below a directory of -I", file)
}

// compile adds the descriptors of the files and of what they import, each after its imports.
func compile(ctx context.Context, imports []string, request *pluginpb.CodeGeneratorRequest) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: imports}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, request.FileToGenerate...)
	if err != nil {
		return err
	}
	added := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if added[file.Path()] {
			return
		}
		added[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		request.ProtoFile = append(request.ProtoFile, protoutil.ProtoFromFileDescriptor(file))
	}
	for _, file := range compiled {
		add(file)
	}
	return nil
}

// generate runs the plugin, which has its own types of descriptors.
func generate(request *pluginpb.CodeGeneratorRequest) ([]*plugin.CodeGeneratorResponse_File, error) {
	encoded, err := proto.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode the request for the plugin: %w", err)
	}
	decoded := &plugin.CodeGeneratorRequest{}
	if err := gogoproto.Unmarshal(encoded, decoded); err != nil {
		return nil, fmt.Errorf("decode the request for the plugin: %w", err)
	}
	response := command.Generate(decoded)
	if response.Error != nil {
		return nil, errors.New(response.GetError())
	}
	return response.File, nil
}
