// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig implements `annex kubeconfig`, which signs a client certificate with
// annex's CA. It needs the data directory and no running annex.
package kubeconfig

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/annex-dev/annex/pkg/datadir"
	"github.com/annex-dev/annex/pkg/pki"
)

const (
	defaultTTL = 24 * time.Hour
	// minTTL exceeds usual clock skew.
	minTTL = time.Minute
	// maxTTL is a year, because a certificate cannot be revoked.
	maxTTL = 365 * 24 * time.Hour
)

type options struct {
	dataDir string
	user    string
	groups  []string
	ttl     time.Duration
	server  string

	clock clock.PassiveClock
}

// NewCommand returns `annex kubeconfig`, which prints to out.
func NewCommand(out io.Writer) *cobra.Command {
	o := &options{dataDir: ".annex", ttl: defaultTTL, clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "kubeconfig --user NAME",
		Short: "Print a kubeconfig with a short-lived client certificate",
		Long: "Print a kubeconfig with a client certificate signed by annex's CA in --data-dir. It authenticates as the user and\n" +
			"groups until it expires, and cannot be revoked before. Authorization decides what the user can do. annex need not\n" +
			"run.",
		Example: "  # For a day:\n" +
			"  annex kubeconfig --user alice --group developers > alice.kubeconfig\n" +
			"  # For a build that takes an hour:\n" +
			"  annex kubeconfig --user ci --ttl 1h > ci.kubeconfig",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(out)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.dataDir, "data-dir", o.dataDir, "The data directory of the annex to log in to.")
	fs.StringVar(&o.user, "user", o.user, "The name of the user.")
	fs.StringArrayVar(&o.groups, "group", o.groups, "A group that the user is in. Can be given more than once.")
	fs.DurationVar(&o.ttl, "ttl", o.ttl, "How long the certificate is valid.")
	fs.StringVar(&o.server, "server", o.server, "The URL of annex. If not set, the one in admin.kubeconfig.")
	return cmd
}

func (o *options) run(out io.Writer) error {
	dir, err := datadir.Find(o.dataDir)
	if err != nil {
		return err
	}
	now := o.clock.Now()
	authority, err := pki.LoadAuthority(dir.PKIDir(), now)
	if err != nil {
		return fmt.Errorf("--data-dir %s: %w", o.dataDir, err)
	}
	if end := authority.Certificate().NotAfter; now.Add(o.ttl).After(end) {
		return fmt.Errorf("--ttl %s: annex's CA expires before, on %s", o.ttl, end.UTC().Format(time.RFC3339))
	}
	kubeconfig, err := o.locate(dir.AdminKubeconfig())
	if err != nil {
		return err
	}
	pair, err := authority.Issue(pki.ClientTemplate(o.user, o.groups...), now, o.ttl)
	if err != nil {
		return fmt.Errorf("sign a certificate for %s: %w", o.user, err)
	}
	kubeconfig.Authority = authority.CertPEM()
	kubeconfig.User, kubeconfig.CertPEM, kubeconfig.KeyPEM = o.user, pair.CertPEM, pair.KeyPEM
	kubeconfig.Context = o.user + "@annex"
	encoded, err := kubeconfig.Encode()
	if err != nil {
		return fmt.Errorf("encode the kubeconfig: %w", err)
	}
	if err := keepPrivate(out); err != nil {
		return err
	}
	_, err = out.Write(encoded)
	return err
}

// locate returns the address of annex from the administrator's kubeconfig.
func (o *options) locate(adminKubeconfig string) (pki.Kubeconfig, error) {
	found := pki.Kubeconfig{ServerURL: o.server}
	admin, err := clientcmd.LoadFromFile(adminKubeconfig)
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.server != "":
		return found, nil
	case err != nil:
		return found, fmt.Errorf("read the address of annex, which --server can set: %w", err)
	}
	context := admin.Contexts[admin.CurrentContext]
	if context == nil || admin.Clusters[context.Cluster] == nil {
		return found, fmt.Errorf("%s has no cluster in its current context: set --server to the address of annex", adminKubeconfig)
	}
	cluster := admin.Clusters[context.Cluster]
	found.ServerName = cluster.TLSServerName
	if found.ServerURL == "" {
		found.ServerURL = cluster.Server
	}
	return found, nil
}

// keepPrivate makes the file that a shell created for the output unreadable for others.
func keepPrivate(out io.Writer) error {
	file, ok := out.(*os.File)
	if !ok {
		return nil
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	if err := file.Chmod(0o600); err != nil {
		return fmt.Errorf("keep others from reading the kubeconfig: %w", err)
	}
	return nil
}

// maxName keeps certificates small enough for every TLS library.
const maxName = 253

func (o *options) validate() error {
	switch {
	case o.dataDir == "":
		return errors.New("--data-dir must not be empty")
	case o.user == "":
		return errors.New("--user is required")
	case o.user == user.Anonymous:
		return fmt.Errorf("--user %s is the user of unauthenticated requests", o.user)
	case strings.HasPrefix(o.user, serviceaccount.ServiceAccountUsernamePrefix):
		return fmt.Errorf("--user %s is a service account: `kubectl create token` makes tokens for those", o.user)
	case o.ttl < minTTL || o.ttl > maxTTL:
		return fmt.Errorf("--ttl %s must be between %s and %s", o.ttl, minTTL, maxTTL)
	}
	if err := checkName("--user", o.user); err != nil {
		return err
	}
	for i, group := range o.groups {
		if err := checkGroup(group); err != nil {
			return err
		}
		if slices.Contains(o.groups[:i], group) {
			return fmt.Errorf("--group %s is given twice", group)
		}
	}
	parsed, err := url.Parse(o.server)
	if o.server != "" && (err != nil || parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "") {
		return fmt.Errorf("--server %q must be a URL like https://annex.example.com:7443", o.server)
	}
	return nil
}

func checkGroup(group string) error {
	if err := checkName("--group", group); err != nil {
		return err
	}
	switch {
	case group == user.AllAuthenticated:
		return fmt.Errorf("--group %s: every authenticated user is in it", group)
	case group == user.AllUnauthenticated:
		return fmt.Errorf("--group %s is the group of unauthenticated requests", group)
	case group == serviceaccount.AllServiceAccountsGroup || strings.HasPrefix(group, serviceaccount.ServiceAccountGroupPrefix):
		return fmt.Errorf("--group %s is of service accounts: `kubectl create token` makes tokens for those", group)
	}
	return nil
}

// checkName rejects names that are mistakes or could be confused with others.
func checkName(flag, name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return fmt.Errorf("%s must not be empty", flag)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("%s %q begins or ends with a space", flag, name)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%s %q has characters that cannot be printed", flag, name)
	case len(name) > maxName:
		return fmt.Errorf("%s has %d bytes, %d are allowed", flag, len(name), maxName)
	}
	return nil
}
