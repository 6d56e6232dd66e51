// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/dashboards"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// ruleGroups is a file of rules, and the spec of a PrometheusRule.
type ruleGroups struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// readAlerts reads the PrometheusRule of annex.
func readAlerts(t *testing.T) (root string, groups ruleGroups) {
	t.Helper()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, "artifacts/deploy/components/prometheusrule/prometheusrule.yaml"))
	expect.NoError(t, err)
	var object struct {
		Spec ruleGroups `json:"spec"`
	}
	expect.NoError(t, yaml.Unmarshal(content, &object))
	return root, object.Spec
}

// alertSeries has, for each alert, series at intervals of a minute with which it fires, and after how many minutes.
var alertSeries = map[string]struct {
	series  map[string]string
	minutes int
}{
	"AnnexDown":                {map[string]string{`up{job="annex"}`: "1 0x20"}, 6},
	"AnnexMainClusterNotReady": {map[string]string{"annex_main_cluster_ready": "1 0x20"}, 6},
	"AnnexNoLeader":            {map[string]string{`leader_election_master_status{name="annex-controllers",instance="a"}`: "1 0x20", `leader_election_master_status{name="annex-controllers",instance="b"}`: "0x20"}, 6},
	"AnnexStoreUnavailable":    {map[string]string{`annex_store_available{store="west"}`: "1 0x20"}, 6},
	"AnnexStoreNotWritable":    {map[string]string{`annex_store_writable{store="west"}`: "1 0x20", `annex_store_available{store="west"}`: "1x20"}, 6},
	"AnnexStoreAlmostFull":     {map[string]string{`annex_store_size_in_use_bytes{store="west"}`: "79 81x30", `annex_store_quota_bytes{store="west"}`: "100x30"}, 16},
	"AnnexDiskAlmostFull":      {map[string]string{`annex_store_disk_free_bytes{store="west"}`: "100 99x30", `annex_store_size_bytes{store="west"}`: "100x30"}, 16},
	"AnnexStoreEndpointsDown":  {map[string]string{`annex_store_endpoints_down{store="west"}`: "0 1x30"}, 11},
	"AnnexGroupNotPublished": {map[string]string{
		`annex_apiservice_published{group="example.com",version="v1"}`: "1 0x30", `annex_apiservice_published{group="moving.com",version="v1"}`: "0x30",
		`annex_migration_created_timestamp_seconds{migration="m",moved="moving.com",phase="Copying",reason=""}`: "1x30",
	}, 11},
	"AnnexMigrationRetrying":           {map[string]string{`annex_migration_created_timestamp_seconds{migration="m",moved="example.com",phase="Copying",reason="Retrying"}`: "_ 0x30"}, 16},
	"AnnexMigrationFailed":             {map[string]string{`annex_migration_finished_total{result="Failed"}`: "0 0 1x30"}, 3},
	"AnnexUnreadableObjects":           {map[string]string{`annex_unreadable_objects{resource="widgets.example.com"}`: "0 2x30"}, 6},
	"AnnexCertificateExpires":          {map[string]string{`annex_certificate_expiration_timestamp_seconds{certificate="ca"}`: "1814460x90"}, 63},
	"AnnexStoreCertificateExpires":     {map[string]string{`annex_store_client_certificate_expiration_timestamp_seconds{store="west"}`: "1209660x90"}, 63},
	"AnnexPublishedCertificateRefused": {map[string]string{"annex_published_certificate_refused": "0 1x20"}, 6},
	"AnnexServerErrors": {map[string]string{
		`apiserver_request_total{job="annex",code="200"}`: "0+90x40", `apiserver_request_total{job="annex",code="503"}`: "0+4x5 20+10x35",
	}, 18},
}

// TestAlerts evaluates each alert of annex: it fires after its time, and not before. Each has a section in the
// documentation.
func TestAlerts(t *testing.T) {
	t.Parallel()
	root, groups := readAlerts(t)
	troubleshooting, err := os.ReadFile(filepath.Join(root, "docs", "troubleshooting.md"))
	expect.NoError(t, err)
	type object = map[string]any
	var tests []object
	unused := maps.Clone(alertSeries)
	for _, alert := range groups.Groups[0].Rules {
		fires, found := alertSeries[alert.Alert]
		if !found {
			t.Errorf("no test of the alert %s", alert.Alert)
		}
		delete(unused, alert.Alert)
		if !strings.Contains(string(troubleshooting), "\n### "+alert.Alert+"\n") || !strings.HasSuffix(alert.Annotations["runbook_url"], "#"+strings.ToLower(alert.Alert)) {
			t.Errorf("docs/troubleshooting.md has no section %s, or %q does not lead there", alert.Alert, alert.Annotations["runbook_url"])
		}
		var input []object
		for name, values := range fires.series {
			input = append(input, object{"series": name, "values": values})
		}
		count := fmt.Sprintf(`count(ALERTS{alertname=%q,alertstate="firing"}) or vector(0)`, alert.Alert)
		expected := func(minutes, value int) object {
			return object{"expr": count, "eval_time": fmt.Sprint(minutes, "m"), "exp_samples": []object{{"value": value}}}
		}
		tests = append(tests, object{
			"name": alert.Alert, "interval": "1m", "input_series": input,
			"promql_expr_test": []object{expected(0, 0), expected(fires.minutes-2, 0), expected(fires.minutes, 1)},
		})
	}
	if len(unused) > 0 {
		t.Errorf("there is no alert %s", slices.Sorted(maps.Keys(unused)))
	}
	dir := t.TempDir()
	write := func(name string, content any) string {
		encoded, err := yaml.Marshal(content)
		expect.NoError(t, err)
		path := filepath.Join(dir, name)
		expect.NoError(t, os.WriteFile(path, encoded, 0o600))
		return path
	}
	rules := write("rules.yaml", groups)
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", rules)
	promtool(t, "test", "rules", write("tests.yaml", object{"rule_files": []string{rules}, "evaluation_interval": "1m", "tests": tests}))
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := process.Bin(t.Context(), "promtool")
	expect.NoError(t, err)
	if output, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// TestMonitoring lets a Prometheus with annex's alerts watch annex. The dashboards have results, and alerts fire only while
// there is a fault. They have no delay here.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	cluster := maincluster.StartForTest(t, noControllers)
	files, ca := newMount(t), newCA(t, "provided")
	files.replace(t, ca, ca)
	volume := newVolume(t)
	flags := append(files.flags(), "--main-kubeconfig="+behindBalancer(t, cluster), "--data-dir="+volume.dir)
	annex := annextest.StartProcess(t, cluster, flags...) // annexes in one process share their metrics
	etcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1, QuotaBytes: 32 << 20})
	direct, main := clients.For(t, annex.AnnexConfig), kube(t, cluster.Config)
	secret := expect.Create(t, main.CoreV1().Secrets(annextest.Namespace), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-west"}, Data: etcd.Authority.SecretData(t, time.Now().Add(year)),
	})
	annextest.AllowSecret(t, main, secret.Name)
	expect.Create(t, direct.Stores(), &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "west"}, Spec: hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{
			Endpoints: etcd.Endpoints(), Defragmentation: hostingv1alpha1.DefragmentationWhenFull,
			TLS: &hostingv1alpha1.EtcdTLS{SecretRef: hostingv1alpha1.SecretReference{Name: secret.Name}},
		}},
	})
	tls := annex.AnnexConfig.TLSClientConfig
	prometheus := startPrometheus(t, annex, map[string]any{"tls_config": map[string]any{
		"ca": string(tls.CAData), "cert": string(tls.CertData), "key": string(tls.KeyData), "server_name": tls.ServerName,
	}})
	prometheus.waitForAlerts(t)
	checkDashboards(t, direct, prometheus)
	prometheus.waitForAlerts(t)

	expect.MetricNames(t, metrics(t, annex))
	volume.checkAlert(t, prometheus, annex)
	checkStoreAlerts(t, annex, direct, prometheus, etcd)
	checkCertificateAlerts(t, main, prometheus, etcd, files, ca)

	services := main.CoreV1().Services(annextest.Namespace)
	service := expect.Get(t, services, annextest.ServiceName)
	expect.Delete(t, services, service.Name)
	prometheus.waitForAlerts(t, "AnnexGroupNotPublished")
	expect.Create(t, services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: service.Name}, Spec: service.Spec})
	prometheus.waitForAlerts(t)

	checkLeaderAlert(t, main, prometheus)

	checkLog(t, annex, "The main cluster", func() {
		expect.NoError(t, cluster.StopAPIServer(t.Context()))
		prometheus.waitForAlerts(t, "AnnexMainClusterNotReady")
		prometheus.waitFor(t, `max_over_time(annex_main_cluster_ready[20s]) == 0`)
		expect.NoError(t, cluster.StartAPIServer(t.Context()))
		prometheus.waitForAlerts(t)
	})

	migrate(t, direct, "widgets", "nowhere", hostingv1alpha1.MigrationSwitchAutomatic)
	prometheus.waitForAlerts(t, "AnnexMigrationFailed")
	prometheus.waitForAlerts(t)
	expect.NoError(t, annex.Shutdown())
	prometheus.waitForAlerts(t, "AnnexDown")
	annex, err := annex.LaunchProcess(t.Context(), volume.dir, append(flags, "--secure-port="+strings.TrimPrefix(annex.Address(), "127.0.0.1:"))...)
	expect.NoError(t, err)
	t.Cleanup(func() { annex.Stop(t) })
	prometheus.waitForAlerts(t)
}

// volume is a small volume for annex's data, or a folder if this test may not mount one.
type volume struct {
	dir     string
	mounted bool
}

func newVolume(t *testing.T) *volume {
	t.Helper()
	dir := t.TempDir()
	// etcd allocates two files of 64 MB.
	output, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=400m,mode=0700", "tmpfs", dir).CombinedOutput()
	if err != nil {
		t.Logf("AnnexDiskAlmostFull is not tested without a volume: %v: %s", err, output)
		return &volume{dir: dir}
	}
	t.Cleanup(func() { expect.Succeeds(t, exec.Command("umount", dir).Run()) })
	return &volume{dir: dir, mounted: true}
}

// checkAlert leaves half as much space as the etcd inside annex needs for a defragmentation. annex takes no writes then.
func (v *volume) checkAlert(t *testing.T, p *prometheus, annex *annextest.Annex) {
	t.Helper()
	if !v.mounted {
		return
	}
	var size float64
	for line := range strings.Lines(metrics(t, annex)) {
		_, _ = fmt.Sscanf(line, `annex_store_size_bytes{store="default"} %g`, &size) // other lines do not match
	}
	var stat syscall.Statfs_t
	expect.NoError(t, syscall.Statfs(v.dir, &stat))
	free := int64(stat.Bavail) * int64(stat.Bsize) //nolint:unconvert // the types differ between systems
	filler := filepath.Join(v.dir, "filler")
	expect.NoError(t, os.WriteFile(filler, make([]byte, free-int64(size)/2), 0o600))
	p.waitForAlerts(t, "AnnexDiskAlmostFull", "AnnexStoreNotWritable")
	expect.NoError(t, os.Remove(filler))
	p.waitForAlerts(t)
}

// behindBalancer returns a kubeconfig with annex's login to a main cluster behind a balancer, which resets connections while
// the main cluster is down: libraries log that, and a refused connection they do not.
func behindBalancer(t *testing.T, cluster *maincluster.Cluster) string {
	t.Helper()
	balancer, err := maincluster.NewLoadBalancer(maincluster.LoadBalancerOptions{})
	expect.NoError(t, err)
	t.Cleanup(func() { expect.Succeeds(t, balancer.Close()) })
	balancer.Add(strings.TrimPrefix(cluster.URL, "https://"))
	path, err := cluster.KubeconfigFor("system:serviceaccount:" + annextest.Namespace + ":" + annextest.ServiceAccount)
	expect.NoError(t, err)
	content, err := os.ReadFile(path)
	expect.NoError(t, err)
	content = bytes.ReplaceAll(content, []byte(cluster.URL), []byte("https://"+balancer.Address()))
	expect.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// maxOthers bounds the entries in the log about an outage beside the first and the last: errors before annex knows what they
// have in common.
const maxOthers = 10

var reasonInLog = regexp.MustCompile(`reason="\w*"`)

// checkLog fails unless annex logs the begin of an outage once for each reason, its end, and little else between.
func checkLog(t *testing.T, annex *annextest.Annex, what string, outage func()) {
	t.Helper()
	before := len(annex.Process.Stderr())
	outage()
	begins, others, log := map[string]int{}, 0, ""
	poll.UntilDone(t, what+" is ready again in the log", func() (bool, string) {
		var ended bool
		log, _, ended = strings.Cut(annex.Process.Stderr()[before:], what+" is ready again")
		return ended, log
	})
	for line := range strings.Lines(log) {
		if strings.Contains(line, what+" is not ready") {
			begins[reasonInLog.FindString(line)]++
		} else {
			others++
		}
	}
	t.Logf("during an outage:\n%s", log)
	if len(begins) == 0 || others > maxOthers {
		t.Errorf("%d reasons of an outage, and %d other entries, want one at least, and at most %d", len(begins), others, maxOthers)
	}
	for reason, entries := range begins {
		if entries > 1 {
			t.Errorf("%d entries say that an outage begins with %q", entries, reason)
		}
	}
}

// checkLeaderAlert lets another process hold the Lease of the controllers.
func checkLeaderAlert(t *testing.T, main kubernetes.Interface, p *prometheus) {
	t.Helper()
	leases := main.CoordinationV1().Leases(annextest.Namespace)
	hold := func(holder string, seconds int) {
		expect.Patch(t, leases, "annex-controllers", fmt.Sprintf(`{"spec": {"holderIdentity": %q, "leaseDurationSeconds": %d}}`, holder, seconds))
	}
	hold("another", 3600)
	p.waitForAlerts(t, "AnnexNoLeader")
	hold("", 1)
	p.waitForAlerts(t)
}

// checkCertificateAlerts lets the certificates of the Store west and of annex expire in days, and provides one that does
// not match its CA.
func checkCertificateAlerts(t *testing.T, main kubernetes.Interface, p *prometheus, etcd *etcdcluster.Cluster, files *mount, ca *pki.Authority) {
	t.Helper()
	provide := func(left time.Duration) {
		encoded, err := json.Marshal(map[string]any{"data": etcd.Authority.SecretData(t, time.Now().Add(left))})
		expect.NoError(t, err)
		expect.Patch(t, main.CoreV1().Secrets(annextest.Namespace), "etcd-west", string(encoded))
	}
	provide(10 * 24 * time.Hour)
	p.waitForAlerts(t, "AnnexStoreCertificateExpires")
	provide(year)
	p.waitForAlerts(t)
	files.replaceFor(t, 20*24*time.Hour, ca, ca)
	p.waitForAlerts(t, "AnnexCertificateExpires")
	files.replace(t, ca, newCA(t, "another"))
	p.waitForAlerts(t, "AnnexCertificateExpires", "AnnexPublishedCertificateRefused")
	files.replace(t, ca, ca)
	p.waitForAlerts(t)
}

// checkStoreAlerts fills the Store west, damages an object in it, and stops it while a resource is to move there.
func checkStoreAlerts(t *testing.T, server *annextest.Annex, annex *clients.Clients, p *prometheus, etcd *etcdcluster.Cluster) {
	t.Helper()
	client := etcd.Client(t)
	etcd.Fill(t, "/others")
	p.waitForAlerts(t, "AnnexStoreAlmostFull", "AnnexStoreNotWritable")
	_, err := client.Delete(t.Context(), "/others", clientv3.WithPrefix())
	expect.NoError(t, err)
	p.waitForAlerts(t)

	keys, err := client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	expect.NoError(t, err)
	index := slices.IndexFunc(keys.Kvs, func(kv *mvccpb.KeyValue) bool { return strings.Contains(string(kv.Key), "/example.com/widgets/") })
	if index < 0 {
		t.Fatal("the Store west has no widgets")
	}
	damaged := string(keys.Kvs[index].Key)
	_, err = client.Put(t.Context(), damaged, "\x00damaged")
	expect.NoError(t, err)
	widgets := annex.Dynamic.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
	poll.UntilDone(t, "lists of widgets fail", func() (bool, string) {
		_, err := widgets.List(t.Context(), metav1.ListOptions{})
		return apierrors.IsStoreReadError(err), fmt.Sprint(damaged, ": ", err)
	})
	p.waitForAlerts(t, "AnnexUnreadableObjects")
	_, err = client.Delete(t.Context(), damaged)
	expect.NoError(t, err)
	p.waitForAlerts(t)

	checkLog(t, server, "The store", func() {
		etcd.Members[0].Stop(t)
		migrate(t, annex, "gadgets", "west", hostingv1alpha1.MigrationSwitchAutomatic)
		p.waitForAlerts(t, "AnnexStoreUnavailable", "AnnexStoreEndpointsDown", "AnnexMigrationRetrying")
		p.waitForServerErrors(t, func() { _, _ = widgets.List(t.Context(), metav1.ListOptions{}) }, 1)
		p.waitFor(t, `max_over_time(annex_store_available{store="west"}[20s]) == 0`)
		etcd.Members[0].Start(t)
		p.waitForAlerts(t)
	})
	p.waitForServerErrors(t, func() {}, 0)
}

// TestServiceMonitor lets a Prometheus scrape annex as the ServiceMonitor describes it.
func TestServiceMonitor(t *testing.T) {
	annex, main := annextest.Start(t, mainCluster), kube(t, mainCluster.Config)
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	read := func(name string, object any) {
		content, err := os.ReadFile(filepath.Join(root, "artifacts/deploy/components/servicemonitor", name))
		expect.NoError(t, err)
		expect.NoError(t, yaml.Unmarshal(content, object))
	}
	var role rbacv1.ClusterRole
	read("rbac.yaml", &role)
	expect.Create(t, main.RbacV1().ClusterRoles(), &role)
	expect.Create(t, main.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus-annex-metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "prometheus"}},
	})
	var monitor struct {
		Spec struct {
			Endpoints []struct {
				TLSConfig struct {
					ServerName string
					CA         struct{ ConfigMap corev1.ConfigMapKeySelector }
				}
			}
		}
	}
	read("servicemonitor.yaml", &monitor)
	tls := monitor.Spec.Endpoints[0].TLSConfig
	bundle := expect.Eventually(t, main.CoreV1().ConfigMaps(annextest.Namespace), tls.CA.ConfigMap.Name, "has a CA bundle", func(m *corev1.ConfigMap) bool {
		return m.Data[tls.CA.ConfigMap.Key] != ""
	})
	p := startPrometheus(t, annex, map[string]any{
		"authorization": map[string]any{"credentials": serviceAccount(t, mainCluster, "prometheus").BearerToken},
		"tls_config":    map[string]any{"ca": bundle.Data[tls.CA.ConfigMap.Key], "server_name": tls.ServerName},
	})
	p.waitFor(t, `up{job="annex"} == 1`)
}

// prometheus is a Prometheus server that scrapes annex.
type prometheus struct{ address string }

// delays matches the delays of rules.
var delays = regexp.MustCompile(`(?m)^ *for: .*\n`)

// withoutDelay returns rules without delays, and with windows of seconds.
func withoutDelay(rules []byte) []byte {
	return []byte(strings.NewReplacer("[5m]", "[10s]", "[1h]", "[30s]").Replace(delays.ReplaceAllString(string(rules), "")))
}

// startPrometheus lets a Prometheus scrape annex with a login.
func startPrometheus(t *testing.T, annex *annextest.Annex, login map[string]any) *prometheus {
	t.Helper()
	_, groups := readAlerts(t)
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		expect.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	rules, err := yaml.Marshal(groups)
	expect.NoError(t, err)
	scrape := map[string]any{"job_name": "annex", "scheme": "https", "static_configs": []any{map[string]any{"targets": []string{annex.Address()}}}}
	maps.Copy(scrape, login)
	config, err := yaml.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{write("rules.yaml", withoutDelay(rules))},
		"scrape_configs": []any{scrape},
	})
	expect.NoError(t, err)
	program, err := process.Bin(t.Context(), "prometheus")
	expect.NoError(t, err)
	p := &prometheus{address: freeport.ForTest(t)}
	ctx, stop := context.WithCancel(context.Background())
	run := exec.CommandContext(ctx, program, "--config.file="+write("prometheus.yaml", config), "--storage.tsdb.path="+dir, "--web.listen-address="+p.address)
	var log strings.Builder
	run.Stdout, run.Stderr = &log, &log
	expect.NoError(t, run.Start())
	t.Cleanup(func() {
		stop()
		_ = run.Wait()
		if t.Failed() {
			t.Logf("Prometheus:\n%s", log.String())
		}
	})
	return p
}

// waitForAlerts waits until annex is scraped, unless AnnexDown is wanted, and exactly these alerts fire.
func (p *prometheus) waitForAlerts(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	poll.UntilDone(t, fmt.Sprintf("Prometheus fires %q", want), func() (bool, string) {
		scraped, err := p.query(t, `up == 1`)
		if err != nil {
			return false, err.Error()
		}
		// Errors of the server may be a symptom of any outage: waitForServerErrors is for them.
		firing, err := p.query(t, `ALERTS{alertstate="firing",alertname!="AnnexServerErrors"}`)
		if err != nil {
			return false, err.Error()
		}
		names := map[string]bool{}
		for _, labels := range firing {
			names[labels["alertname"]] = true
		}
		got := slices.Sorted(maps.Keys(names))
		return slices.Equal(got, want) && (len(scraped) == 1) != slices.Contains(want, "AnnexDown"), fmt.Sprint(scraped, firing)
	})
}

// waitForServerErrors makes requests until AnnexServerErrors fires for the given number of jobs.
func (p *prometheus) waitForServerErrors(t *testing.T, request func(), jobs int) {
	t.Helper()
	poll.UntilDone(t, fmt.Sprintf("AnnexServerErrors fires for %d jobs", jobs), func() (bool, string) {
		request()
		firing, err := p.query(t, `ALERTS{alertstate="firing",alertname="AnnexServerErrors"}`)
		return err == nil && len(firing) == jobs, fmt.Sprint(firing, err)
	})
}

// waitFor waits until a query has a result.
func (p *prometheus) waitFor(t *testing.T, query string) {
	t.Helper()
	poll.UntilDone(t, "a result of "+query, func() (bool, string) {
		found, err := p.query(t, query)
		return err == nil && len(found) > 0, fmt.Sprint(found, err)
	})
}

// query returns the labels of the series of a query.
func (p *prometheus) query(t *testing.T, query string) ([]map[string]string, error) {
	t.Helper()
	found, err := p.get(t, "/api/v1/query", url.Values{"query": {query}})
	var labels []map[string]string
	for _, one := range found {
		labels = append(labels, one.Metric)
	}
	return labels, err
}

// queryRange returns the values of a query at each second of the last time.
func (p *prometheus) queryRange(t *testing.T, query string, last time.Duration) ([]dashboards.Series, error) {
	t.Helper()
	now := time.Now()
	return p.get(t, "/api/v1/query_range", url.Values{"query": {query}, "start": {now.Add(-last).Format(time.RFC3339)}, "end": {now.Format(time.RFC3339)}, "step": {"1s"}})
}

func (p *prometheus) get(t *testing.T, path string, parameters url.Values) ([]dashboards.Series, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.address+path, nil)
	expect.NoError(t, err)
	request.URL.RawQuery = parameters.Encode()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("query Prometheus: %w", err)
	}
	defer response.Body.Close()
	var answer struct {
		Data struct {
			Result []dashboards.Series `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("query Prometheus: %s: %w", response.Status, err)
	}
	return answer.Data.Result, nil
}
