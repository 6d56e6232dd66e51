// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injector implements `annex injector`, a mutating admission webhook that applies
// InjectionProfiles in clusters whose API server does not.
package injector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	apivalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/annex-dev/annex/pkg/cmd/internal/login"
)

type options struct {
	login             login.Options
	address           string
	port              int
	certFile, keyFile string
	clientCA          string
	allowedNames      []string
	signer, certDir   string
	hosts             []string
	logs              *logsapi.LoggingConfiguration
}

// NewCommand returns `annex injector`.
func NewCommand(out io.Writer) *cobra.Command {
	o := &options{
		address: "0.0.0.0", port: 8443, certDir: "injector-certificates",
		hosts: []string{"annex-injector.annex-system.svc"}, logs: logsapi.NewLoggingConfiguration(),
	}
	cmd := &cobra.Command{
		Use:   "injector",
		Short: "Inject containers in custom resources, as an admission webhook",
		Long: "Serve a mutating admission webhook at /mutate that applies InjectionProfiles, for clusters that inject\n" +
			"outside of their API server. `annex serve` applies them to its own resources without it.\n" +
			"Only API servers with a client certificate of --client-ca-file for one of --allowed-names are answered.\n" +
			"The certificate is read from files, or requested with a CertificateSigningRequest.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), out)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	o.login.AddFlags(fs, login.AnnexOrMain)
	fs.StringVar(&o.address, "bind-address", o.address, "The IP address to listen on.")
	fs.IntVar(&o.port, "secure-port", o.port, "The port to serve HTTPS on.")
	fs.StringVar(&o.certFile, "tls-cert-file", o.certFile, "The serving certificate, in PEM. It is read again when it changes.")
	fs.StringVar(&o.keyFile, "tls-private-key-file", o.keyFile, "The private key of --tls-cert-file.")
	fs.StringVar(&o.clientCA, "client-ca-file", o.clientCA, "The CAs, in PEM, of the client certificates of API servers. It is read again when it changes. Required.")
	fs.StringSliceVar(&o.allowedNames, "allowed-names", o.allowedNames, "The common names that client certificates of API servers have. Required.")
	fs.StringVar(&o.signer, "signer-name", o.signer,
		"Without --tls-cert-file: request the serving certificate with a CertificateSigningRequest for this signer, and renew it. Others approve and sign the request.")
	fs.StringVar(&o.certDir, "cert-dir", o.certDir, "The folder to keep the key and the certificate of --signer-name in.")
	fs.StringSliceVar(&o.hosts, "certificate-hosts", o.hosts, "The DNS names and IP addresses in the certificate of --signer-name.")
	logsapi.AddFlags(o.logs, fs)
}

func (o *options) validate() error {
	var errs []error
	if net.ParseIP(o.address) == nil {
		errs = append(errs, fmt.Errorf("--bind-address %q: must be an IP address", o.address))
	}
	if msgs := apivalidation.IsValidPortNum(o.port); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--secure-port %d: %s", o.port, strings.Join(msgs, ", ")))
	}
	if o.clientCA == "" {
		errs = append(errs, errors.New("--client-ca-file is required"))
	}
	if len(o.allowedNames) == 0 || slices.Contains(o.allowedNames, "") {
		errs = append(errs, errors.New("--allowed-names is required, without empty names"))
	}
	switch {
	case (o.certFile == "") != (o.keyFile == ""):
		errs = append(errs, errors.New("--tls-cert-file, --tls-private-key-file: both are required, or none"))
	case (o.certFile == "") == (o.signer == ""):
		errs = append(errs, errors.New("one of --tls-cert-file and --signer-name is required"))
	}
	if o.signer != "" {
		errs = append(errs, o.validateRequest())
	}
	return utilerrors.NewAggregate(errs)
}

func (o *options) validateRequest() error {
	var errs []error
	if domain, name, found := strings.Cut(o.signer, "/"); !found || name == "" || len(apivalidation.IsDNS1123Subdomain(domain)) > 0 {
		errs = append(errs, fmt.Errorf("--signer-name %q: must be of the form <domain>/<name>", o.signer))
	}
	if o.certDir == "" {
		errs = append(errs, errors.New("--cert-dir must not be empty"))
	}
	if len(o.hosts) == 0 {
		errs = append(errs, errors.New("--certificate-hosts must not be empty"))
	}
	for _, host := range o.hosts {
		if net.ParseIP(host) == nil && len(apivalidation.IsDNS1123Subdomain(host)) > 0 {
			errs = append(errs, fmt.Errorf("--certificate-hosts %q: must be a DNS name or an IP address", host))
		}
	}
	return utilerrors.NewAggregate(errs)
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	if err := logsapi.ValidateAndApply(o.logs, nil); err != nil {
		return fmt.Errorf("apply the logging flags: %w", err)
	}
	clients, err := o.login.Connect("annex-injector")
	if err != nil {
		return err
	}
	certificate, err := o.certificate(ctx, clients.Kube)
	if err != nil {
		return err
	}
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", o.clientCA)
	if err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	hook, err := newWebhook(clients.Annex, clients.Kube, clients.Definitions)
	if err != nil {
		return err
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", net.JoinHostPort(o.address, strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("--bind-address, --secure-port: %w", err)
	}
	go ca.Run(ctx, 1)
	hook.start(ctx)
	defer hook.shutdown()
	fmt.Fprintf(out, "annex injector: serving https://%s/mutate for %s\n", listener.Addr(), clients.Config.Host)
	return serve(ctx, listener, certificate, hook.handler(ca, o.allowedNames))
}
