// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// TestCommands moves a group with the commands, which also grant and revoke the rights: annex itself has
// only the rights of its manifests.
func TestCommands(t *testing.T) {
	t.Parallel()
	f := newFixtureWithoutRights(t, sharedAnnex, "commands.example.com")
	ours := hostingv1alpha1.PublishedBy(annextest.Namespace, annextest.ServiceName)
	for i := range 20 {
		f.create("default", fmt.Sprintf("w-%d", i), nil)
	}
	kept := f.create("default", "kept", func(widget *unstructured.Unstructured) { widget.SetFinalizers([]string{"example.com/keep"}) })

	f.run("move --dry-run", "widgets", "Nothing was changed.")
	f.wantServed("")
	f.wantRights(false)

	f.run("move", "clusterrole.rbac.authorization.k8s.io/annex-hosted-commands.example.com created", "Copying", "21 objects", "Completed",
		"annex serves commands.example.com. The main cluster keeps its copy.", "annex rollback commands.example.com")
	f.wantServed(ours)
	f.wantRights(true)
	f.wantDiagnosed("21", "the cluster keeps the copy from before the move")
	f.wantIdentity(kept)
	expect.Contains(t, f.kubectl("", "get", "widgets.commands.example.com", "kept"), "kept")
	f.run("move", "has completed already", "annex serves commands.example.com.")
	born := f.create("default", "born", nil)
	owned := f.configMap(born)

	f.run("rollback", "Cleaning", "Completed", "clusterrole.rbac.authorization.k8s.io/annex-hosted-commands.example.com deleted", "The main cluster serves commands.example.com.")
	f.wantServed("")
	f.wantRights(false)
	f.wantLabel("")
	f.wantIdentity(kept)
	returned, err := f.widgets().Namespace("default").Get(t.Context(), "born", metav1.GetOptions{})
	expect.NoError(t, err)
	if got := expect.Get(t, f.main.Kube.CoreV1().ConfigMaps("default"), owned.Name).OwnerReferences[0].UID; got != returned.GetUID() {
		t.Errorf("the ConfigMap has the owner %s, want %s", got, returned.GetUID())
	}
	f.run("rollback", "has completed already", "The main cluster serves commands.example.com.")
	f.fail("finalize --yes-delete=commands.example.com --no-backup", "finalize commands.example.com: annex ")

	expect.Gone(t, f.own.HostedResources(), "widgets.commands.example.com")
	f.run("move --store=default", "Completed")
	f.wantServed(ours)
	f.finalize(kept)
	f.wantDiagnosed("0", "Can move: in annex; annex (annex-system.annex) serves v1")
}

// wantDiagnosed fails unless annex diagnose counts these objects in the main cluster, and prints a sentence.
func (f *fixture) wantDiagnosed(objects, sentence string) {
	f.Helper()
	code, output := execute("diagnose", "--group="+f.group, "--kubeconfig="+mainCluster.Kubeconfig)
	if code != 0 {
		f.Errorf("annex diagnose: exit code %d", code)
	}
	expect.Contains(f, output, f.group+"   "+objects+" ", sentence)
}

// finalize deletes the main cluster's copy, and restores the backup to another annex.
func (f *fixture) finalize(kept *unstructured.Unstructured) {
	f.Helper()
	folder := filepath.Join(f.TempDir(), "backup")
	f.fail("finalize --yes-delete=example.com", `--yes-delete "example.com" is not the group`)
	f.run("finalize --yes-delete="+f.group+" --backup="+folder, "22 objects", "Cleaning", "Completed", "The main cluster stores no objects of "+f.group)
	keys, err := mainCluster.EtcdKeys(f.Context(), "/registry/"+f.group+"/")
	if err != nil || len(keys) > 0 {
		f.Errorf("the main cluster has %q after finalize (%v)", keys, err)
	}
	f.wantIdentity(kept)
	role := expect.Get(f, f.main.Kube.RbacV1().ClusterRoles(), hostingv1alpha1.HostedRoleName(f.group))
	expect.Equal(f, []rbacv1.PolicyRule{{
		APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"},
		ResourceNames: []string{hostingv1alpha1.FrozenPolicyName(f.group)}, Verbs: []string{"delete"},
	}}, role.Rules)

	other, err := testserver.Launch(f.TempDir())
	expect.NoError(f, err)
	f.Cleanup(func() { expect.Succeeds(f, other.Shutdown()) })
	code, output := execute("restore", filepath.Join(folder, "widgets."+f.group+".backup"), "--kubeconfig="+other.Kubeconfig)
	if code != 0 {
		f.Fatalf("annex restore: %s", output)
	}
	restored, err := clients.For(f, other.AnnexConfig).Dynamic.Resource(f.resource()).Namespace("default").Get(f.Context(), "kept", metav1.GetOptions{})
	expect.NoError(f, err)
	expect.Equal(f, kept.GetUID(), restored.GetUID())
}

// TestRollbackAfterRestore is refused: a restore makes the resource versions of a resource a billion higher, also
// after it was deleted, and the main cluster would have to reach them by writes.
func TestRollbackAfterRestore(t *testing.T) {
	t.Parallel()
	const group, of = "restored.example.com", "widgets.restored.example.com"
	own := clients.For(t, sharedAnnex.AnnexConfig)
	file := filepath.Join(t.TempDir(), "widgets.backup")
	deleteOwn := func() {
		expect.Delete(t, own.CRDs(), of)
		expect.Gone(t, own.CRDs(), of)
	}
	expect.Create(t, own.CRDs(), crds.New(group, "widgets", "v1"))
	poll.Until(t, "a backup", func() string {
		if code, output := execute("backup", "--resource="+of, file, "--kubeconfig="+sharedAnnex.Kubeconfig); code != 0 {
			return output
		}
		return ""
	})
	deleteOwn()
	if code, output := execute("restore", file, "--kubeconfig="+sharedAnnex.Kubeconfig); code != 0 {
		t.Fatalf("annex restore: %s", output)
	}
	deleteOwn()
	f := newFixtureWithoutRights(t, sharedAnnex, group)
	f.create("default", "first", nil)
	f.run("move", "annex serves restored.example.com.")
	f.fail("rollback --dry-run", "above the main cluster's, and annex makes at most 50000000 writes")
	refused := f.migrate(hostingv1alpha1.MigrationRollback, nil)
	expect.Contains(t, message(refused), "CannotBeMoved: The resource versions of group "+f.group)
	expect.Equal(t, hostingv1alpha1.MigrationFailed, refused.Status.Phase)
	f.wantServed(hostingv1alpha1.PublishedBy(annextest.Namespace, annextest.ServiceName))
	f.run("finalize --yes-delete="+f.group+" --no-backup", "Completed")
}

// TestCommandsOfAnEmptyGroup moves a group without objects there, finalizes it and moves it back.
func TestCommandsOfAnEmptyGroup(t *testing.T) {
	t.Parallel()
	f := newFixtureWithoutRights(t, sharedAnnex, "empty.example.com")
	f.run("move", "0 objects", "annex serves empty.example.com.", "To return to the main cluster:\n  annex rollback empty.example.com")
	f.wantServed(hostingv1alpha1.PublishedBy(annextest.Namespace, annextest.ServiceName))
	f.wantLabel("true")
	f.create("default", "first", nil)
	f.run("move", "has completed already", "annex serves empty.example.com.")
	f.run("finalize --yes-delete=empty.example.com --no-backup", "Completed")
	expect.Get(t, f.main.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies(), hostingv1alpha1.FrozenPolicyName(f.group))
	f.run("rollback", "The main cluster serves empty.example.com.")
	f.wantServed("")
	expect.Gone(t, f.main.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies(), hostingv1alpha1.FrozenPolicyName(f.group))
	f.create("default", "second", nil)
}

// waitTimeout bounds kubectl wait as migrationTimeout does.
var waitTimeout = "--timeout=" + migrationTimeout.String()

// TestMigrationOfTheDocumentation moves a group with the manifest of docs/moving.md.
func TestMigrationOfTheDocumentation(t *testing.T) {
	t.Parallel()
	f := newFixtureWithoutRights(t, sharedAnnex, "docs.example.com")
	before := f.create("default", "one", nil)
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "moving.md"))
	expect.NoError(t, err)
	_, after, _ := strings.Cut(string(page), "```yaml\n")
	manifest, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("docs/moving.md has no manifest")
	}
	manifest = strings.ReplaceAll(manifest, "example.com", f.group)
	manifest = strings.ReplaceAll(manifest, "example-com", "docs-example-com")

	f.kubectl(f.rights("move"), "apply", "-f", "-")
	f.kubectl(manifest, "apply", "-f", "-")
	f.kubectl("", "wait", "--for=jsonpath={.status.conditions[0].reason}=Waiting", waitTimeout, "migration/docs-example-com-move")
	f.kubectl("", "wait", "--for=jsonpath={.status.phase}=Following", waitTimeout, "migration/docs-example-com-move")
	f.kubectl(strings.Replace(manifest, "confirmed: false", "confirmed: true", 1), "apply", "-f", "-")
	f.kubectl("", "wait", "--for=condition=Complete", waitTimeout, "migration/docs-example-com-move")
	f.wantServed(hostingv1alpha1.PublishedBy(annextest.Namespace, annextest.ServiceName))
	f.wantIdentity(before)

	back := strings.NewReplacer("operation: Move", "operation: Rollback", "docs-example-com-move", "docs-example-com-back", "switch: Manual", "switch: Automatic").Replace(manifest)
	f.kubectl(f.rights("rollback"), "apply", "-f", "-")
	f.kubectl(back, "apply", "-f", "-")
	f.kubectl("", "wait", "--for=condition=Complete", waitTimeout, "migration/docs-example-com-back")
	f.wantServed("")
	f.wantLabel("")
	f.wantIdentity(before)
	f.run("rollback", "migration.hosting.annex.dev/docs-example-com-back has completed already.", "The main cluster serves docs.example.com.")
	f.wantRights(false)
}

// TestUnreachableGroupReturns cuts the main cluster off from annex after the switch. The rights that the
// command granted for the move suffice to roll the group back. No other test runs meanwhile.
func TestUnreachableGroupReturns(t *testing.T) {
	f := newFixtureWithoutRights(t, sharedAnnex, "unreachable.example.com")
	before := f.create("default", "one", nil)
	f.run("move --wait=false", "To see its progress: annex move unreachable.example.com")
	migrations := f.own.Hosting.HostingV1alpha1().Migrations()
	name := f.migrations()[0].Name
	expect.Eventually(t, migrations, name, "annex serves the group", func(m *hostingv1alpha1.Migration) bool {
		return m.Status.Phase == hostingv1alpha1.MigrationObserving
	})
	// Open connections would survive the deletion of an endpoint. They do not survive the deletion of the Service.
	expect.Delete(t, f.main.Kube.CoreV1().Services(annextest.Namespace), annextest.ServiceName)
	_, err := f.own.Dynamic.Resource(f.resource()).Namespace("default").Create(t.Context(), f.newWidget("default", "born"), metav1.CreateOptions{})
	expect.NoError(t, err)
	if failed := f.await(name); failed.Status.Phase != hostingv1alpha1.MigrationFailed {
		t.Errorf("the move ended as %s", failed.Status.Phase)
	} else {
		expect.Contains(t, message(failed), "Undone", name+"-undo")
	}
	undo := name + "-undo"
	// annex does not have the rights that `annex rollback` grants.
	expect.Eventually(t, migrations, undo, "annex waits because of dependents of the new object", func(m *hostingv1alpha1.Migration) bool {
		return strings.Contains(message(m), "1 objects were created in annex and get new UIDs")
	})
	_, err = migrations.Patch(t.Context(), undo, types.MergePatchType, []byte(`{"spec":{"confirmed":true}}`), metav1.PatchOptions{})
	expect.NoError(t, err)
	expect.Eventually(t, migrations, undo, "the main cluster serves the group again", func(m *hostingv1alpha1.Migration) bool {
		return m.Status.Phase == hostingv1alpha1.MigrationCleaning
	})
	f.wantServed("")
	_, err = f.widgets().Namespace("default").Get(t.Context(), "born", metav1.GetOptions{})
	expect.NoError(t, err)
	expect.NoError(t, mainCluster.ExternalNameService(t.Context(), annextest.Namespace, annextest.ServiceName))
	expect.NoError(t, sharedAnnex.WaitHosting(t.Context()))
	t.Parallel()

	if undone := f.await(undo); undone.Status.Phase != hostingv1alpha1.MigrationCompleted {
		t.Errorf("the rollback ended as %s: %s", undone.Status.Phase, message(undone))
	}
	f.wantServed("")
	f.wantLabel("")
	f.wantIdentity(before)
	f.run("rollback", name+"-undo has completed already", "The main cluster serves unreachable.example.com.")
	f.wantRights(false)
}

// TestCommandsAreRefused checks what users see who may not, or cannot, move a group: nothing changes until an administrator
// has granted the rights.
func TestCommandsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixtureWithoutRights(t, sharedAnnex, "unmoved.example.com")
	f.create("default", "one", nil)
	f.fail("move --store=absent", "there is no Store absent")
	f.fail("rollback", "annex has nothing of this group")
	f.fail("move --confirm", "no Migration is under way that could be confirmed")
	absent := *f
	absent.group = "absent.example.com"
	absent.fail("move", "absent.example.com")
	absent.fail("rollback", "annex has nothing of this group")

	expect.Create(t, f.main.Kube.RbacV1().ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
		{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}},
		{APIGroups: []string{hostingv1alpha1.GroupName}, Resources: []string{"migrations"}, Verbs: []string{"*"}},
	}})
	expect.Create(t, f.main.Kube.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "reader"}},
	})
	f.failAs("stranger", "move", "list the Migrations", `User "stranger"`)
	f.failAs("reader", "move", "grant annex the rights for unmoved.example.com", "clusterroles", "annex move unmoved.example.com --print-rights")
	f.wantServed("")
	f.wantRights(false)
	f.wantLabel("")
	for _, migration := range f.migrations() {
		t.Errorf("there is the Migration %s", migration.Name)
	}

	// What the error advises.
	f.kubectl(f.rights("move"), "apply", "-f", "-")
	reader, err := mainCluster.KubeconfigFor("reader")
	expect.NoError(t, err)
	if code, output := f.command(reader, "move"); code != 0 {
		t.Errorf("with the rights of an administrator: %s", output)
	}
	f.wantServed(hostingv1alpha1.PublishedBy(annextest.Namespace, annextest.ServiceName))
}

// execute runs annex in this process, as the plugin of kubectl does.
func execute(arguments ...string) (code int, output string) {
	var out bytes.Buffer
	code = cmd.Execute(arguments, &out, &out)
	return code, out.String()
}

// rights returns what a command prints as the rights to apply, without warnings.
func (f *fixture) rights(command string, flags ...string) string {
	f.Helper()
	var out, warnings bytes.Buffer
	if code := cmd.Execute(append([]string{command, f.group, "--print-rights", "--kubeconfig=" + f.annex.Cluster.Kubeconfig}, flags...), &out, &warnings); code != 0 {
		f.Fatalf("annex %s --print-rights: exit code %d: %s", command, code, &warnings)
	}
	expect.Contains(f, out.String(), "kind: ClusterRole")
	return out.String()
}

// command runs one of the commands with the group.
func (f *fixture) command(kubeconfig, line string) (code int, output string) {
	f.Helper()
	name, flags, _ := strings.Cut(line, " ")
	code, output = execute(append([]string{name, f.group, "--kubeconfig=" + kubeconfig}, strings.Fields(flags)...)...)
	f.Logf("annex %s %s %s: exit code %d\n%s", name, f.group, flags, code, output)
	return code, output
}

// run fails unless the command succeeds, and prints all words.
func (f *fixture) run(line string, words ...string) string {
	f.Helper()
	code, output := f.command(mainCluster.Kubeconfig, line)
	if code != 0 {
		f.Fatalf("annex %s: exit code %d", line, code)
	}
	expect.Contains(f, output, words...)
	return output
}

// fail fails unless the command does, and prints all words.
func (f *fixture) fail(line string, words ...string) {
	f.Helper()
	f.failWith(mainCluster.Kubeconfig, line, words...)
}

func (f *fixture) failAs(user, line string, words ...string) {
	f.Helper()
	kubeconfig, err := mainCluster.KubeconfigFor(user)
	expect.NoError(f, err)
	f.failWith(kubeconfig, line, words...)
}

func (f *fixture) failWith(kubeconfig, line string, words ...string) {
	f.Helper()
	code, output := f.command(kubeconfig, line)
	if code != 1 {
		f.Errorf("annex %s: exit code %d, want 1", line, code)
	}
	expect.Contains(f, output, words...)
}

// kubectl runs kubectl with the main cluster's kubeconfig.
func (f *fixture) kubectl(input string, arguments ...string) string {
	f.Helper()
	program, err := process.Bin(f.Context(), "kubectl")
	expect.NoError(f, err)
	run := exec.CommandContext(f.Context(), program, append([]string{"--kubeconfig=" + f.annex.Cluster.Kubeconfig}, arguments...)...)
	run.Stdin = strings.NewReader(input)
	output, err := run.CombinedOutput()
	if err != nil {
		f.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

// wantRights fails unless annex has rights for the group, or has none.
func (f *fixture) wantRights(granted bool) {
	f.Helper()
	name, rbac := hostingv1alpha1.HostedRoleName(f.group), f.main.Kube.RbacV1()
	_, clusterErr := rbac.ClusterRoles().Get(f.Context(), name, metav1.GetOptions{})
	_, roleErr := rbac.Roles(annextest.Namespace).Get(f.Context(), name, metav1.GetOptions{})
	_, bindingErr := rbac.RoleBindings(annextest.Namespace).Get(f.Context(), name, metav1.GetOptions{})
	for what, err := range map[string]error{"ClusterRole": clusterErr, "Role": roleErr, "RoleBinding": bindingErr} {
		if got := err == nil; got != granted || err != nil && !apierrors.IsNotFound(err) {
			f.Errorf("%s %s exists: %t, want %t (%v)", what, name, got, granted, err)
		}
	}
}

func (f *fixture) wantLabel(want string) {
	f.Helper()
	crd := expect.Get(f, f.main.CRDs(), "widgets."+f.group)
	expect.Equal(f, want, crd.Labels[hostingv1alpha1.HostedLabel], "label of "+crd.Name)
}
