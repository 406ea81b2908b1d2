// Command control-plane is every program of a local Kubernetes control plane in one file, chosen by its first argument, and the
// programs that install into one: kubectl and helm.
//
// One link instead of seven keeps the build short and the cache small. Each program is the unchanged upstream one: this
// file only repeats what its own main package does. It makes no decision about flags; the Rust library beside it does.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

const programs = "etcd, helm, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kwok"

func main() {
	if len(os.Args) < 2 {
		fail("the first argument names the program: %s", programs)
	}
	// The program sees itself as its first argument, as if it had been called by its own name.
	os.Args = os.Args[1:]
	switch os.Args[0] {
	case "etcd":
		etcdmain.Main(os.Args)
	case "helm":
		runHelm()
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kubectl":
		runKubectl()
	case "kwok":
		runKwok()
	default:
		fail("no program %q; there are: %s", os.Args[0], programs)
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(2)
}

// runHelm takes its exit code from the error: tests of charts tell a refused chart from a failed call.
func runHelm() {
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err != nil {
		fail("helm: %s", err)
	}
	if err := command.Execute(); err != nil {
		if coded, ok := errors.AsType[helm.CommandError](err); ok {
			os.Exit(coded.ExitCode)
		}
		os.Exit(1)
	}
}

// runKubectl sets the verbosity before the command is built: building it already logs.
func runKubectl() {
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

// runKwok reads the configuration file into the context first: the command takes its stages and defaults from there.
func runKwok() {
	// Kubernetes adds a flag "version" to the global set, which kwok's command would take for its own.
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)

	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	ctx, logger := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		logger.Error("Init config flags", "err", err)
		os.Exit(1)
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("Execute exit", "err", err)
		os.Exit(1)
	}
}
