// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
	netutils "k8s.io/utils/net"

	"github.com/annex-dev/annex/pkg/pki"
)

// Serving configures the port and the serving certificate.
type Serving struct {
	*genericoptions.SecureServingOptions
}

// NewServing returns the defaults: loopback, port 7443, a certificate of annex's own CA.
func NewServing() *Serving {
	upstream := genericoptions.NewSecureServingOptions()
	upstream.BindAddress = netutils.ParseIPSloppy("127.0.0.1")
	upstream.BindPort = 7443
	upstream.Required = true
	upstream.ServerCert = genericoptions.GeneratableKeyCert{}
	return &Serving{upstream}
}

// AddFlags adds upstream's serving flags.
func (o *Serving) AddFlags(fs *pflag.FlagSet) {
	o.SecureServingOptions.AddFlags(fs)
	fs.Lookup("bind-address").Usage = "The IP address on which to listen for the --secure-port port. " +
		"The unspecified address (0.0.0.0 or ::) means all interfaces."
	fs.Lookup("secure-port").Usage = "The port on which to serve HTTPS with authentication and authorization. 0 picks a free port."
	fs.Lookup("tls-cert-file").Usage = "File containing the x509 certificate for HTTPS, followed by intermediates. " +
		"It is reloaded when it changes. If not set, annex creates one in --data-dir and renews it."
	// annex stores its certificates in --data-dir.
	hide(fs, "cert-dir")
}

// Validate checks the flags and the certificate.
func (o *Serving) Validate() []error {
	var errs []error
	// To upstream, port 0 disables serving. To annex, it is any free port.
	if o.BindPort < 0 || o.BindPort > 65535 {
		errs = append(errs, fmt.Errorf("--secure-port %d must be between 0 and 65535", o.BindPort))
	}
	if o.ServerCert.CertDirectory != "" {
		errs = append(errs, fmt.Errorf("--cert-dir is not supported: annex keeps its certificates in --data-dir"))
	}
	cert, key := o.ServerCert.CertKey.CertFile, o.ServerCert.CertKey.KeyFile
	switch {
	case cert == "" && key == "":
	case cert == "" || key == "":
		errs = append(errs, fmt.Errorf("--tls-cert-file and --tls-private-key-file must be set together"))
	default:
		if err := pki.CheckServingPair(cert, key, time.Now()); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// OwnCertificate reports whether annex serves with a certificate of its own.
func (o *Serving) OwnCertificate() bool { return o.ServerCert.CertKey.CertFile == "" }

// UseOwnCertificate serves with annex's own certificate: for all names, or only for
// serverName if that is not empty.
func (o *Serving) UseOwnCertificate(file, serverName string) {
	if serverName == "" {
		o.ServerCert.CertKey.CertFile, o.ServerCert.CertKey.KeyFile = file, file
		return
	}
	own := cliflag.NamedCertKey{Names: []string{serverName}, CertFile: file, KeyFile: file}
	o.SNICertKeys = append(o.SNICertKeys, own)
}

// UseCertificate serves with a certificate that is not in files.
func (o *Serving) UseCertificate(cert dynamiccertificates.CertKeyContentProvider) {
	o.ServerCert.CertKey = genericoptions.CertKey{}
	o.ServerCert.GeneratedCert = cert
}

// Listen opens the port early, so that a port in use is reported before anything starts and
// the port for 0 is known. With sharing flags upstream opens it, with socket options.
func (o *Serving) Listen(ctx context.Context) error {
	if o.Listener != nil || o.PermitPortSharing || o.PermitAddressSharing {
		return nil
	}
	address := net.JoinHostPort(o.BindAddress.String(), strconv.Itoa(o.BindPort))
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--bind-address, --secure-port: %w", err)
	}
	o.Listener = listener
	o.BindPort = listener.Addr().(*net.TCPAddr).Port
	return nil
}

// Close closes the port that Listen opened.
func (o *Serving) Close() {
	if o.Listener != nil {
		_ = o.Listener.Close()
	}
}

// URL returns annex's address on this machine.
func (o *Serving) URL() string {
	host := o.BindAddress.String()
	if o.BindAddress.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(o.BindPort))
}
