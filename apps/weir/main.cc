// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "apps/weir/command.h"
#include "apps/weir/remote.h"
#include "weir/base/quote.h"

#if defined(__SANITIZE_ADDRESS__)
// What OpenSSL keeps for a thread goes with the thread, unless that ends when the process already
// does: gRPC has such threads. It is no leak, and must not change the exit status of a test.
extern "C" const char* __lsan_default_suppressions() { return "leak:libcrypto.so\n"; }
extern "C" const char* __lsan_default_options() { return "print_suppressions=0"; }
#endif

namespace weir::app {
namespace {

constexpr const char* kFooter = R"(
Examples:
  weir serve --export scratch=file:scratch.img,size=4GiB
  weir limit --bps 50MiB -- backup.tar | ssh archive 'cat > backup.tar'
  weir rules --type jobid site.rules
  weir alloc --rate 20k --period 20ms --explain periods.jsonl
  weir sim redistribution --out report
  weir explain ior.17
  weir lctl set_param ost.OSS.ost_io.nrs_tbf_rule="start dd jobid={dd.*} rate=100"
  weir cluster rule start dd jobid={dd.*} rate=1000 by=rule
  weir lock run nightly -- rsync -a /data backup:
  weir lustre check
  weir limit --help

Manual: weir(1). Exit statuses follow sysexits(3).)";

// A file opened later must not become standard output by accident. Libraries open theirs before
// main(), so this runs before them: nothing is set up yet, not even for a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("address", "undefined", "thread")))
#endif
void reserve_standard_streams(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  for (int fd = 0; fd <= 2; ++fd) {
    if (syscall(SYS_fcntl, fd, F_GETFD) != -1) continue;
    // Opened the wrong way round, so that using it fails like a closed one.
    const int flags = fd == 0 ? O_WRONLY : O_RDONLY;
    if (syscall(SYS_openat, AT_FDCWD, "/dev/null", flags) != fd) {
      _exit(static_cast<int>(Exit::kIoErr));
    }
  }
}
[[gnu::section(".preinit_array"), gnu::used]] constexpr auto* kBeforeAll =
    &reserve_standard_streams;

int report_misuse(const CLI::App& weir, const CLI::ParseError& error) {
  std::string name = weir.get_name();
  for (const CLI::App* sub : weir.get_subcommands()) name += " " + sub->get_name();
  print_error("{}: {}; try '{} --help'\n", name, visible(error.what()), name);
  return static_cast<int>(Exit::kUsage);
}

// Called lctl, it is that.
bool is_lctl(const char* name) {
  const std::string_view path(name);
  return path.substr(path.rfind('/') + 1) == "lctl";
}

int run_as_lctl(int argc, char** argv) {
  try {
    return run_lctl(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const Failure& failure) {
    print_error("lctl: {}\n", visible(failure.message));
    return static_cast<int>(failure.status);
  }
}

int run(int argc, char** argv) {
  if (argc > 0 && is_lctl(argv[0])) return run_as_lctl(argc, argv);
  CLI::App weir("I/O flow control for shared storage", "weir");
  weir.set_version_flag("--version", "weir " WEIR_VERSION, "Print the version and exit");
  weir.set_help_flag("-h,--help", "Print this help and exit");
  weir.require_subcommand(1);
  weir.footer(kFooter);
  int status = 0;
  add_alloc(weir, status);
  add_limit(weir, status);
  add_lock(weir, status);
  add_lustre(weir, status);
  add_rules(weir, status);
  add_serve(weir, status);
  add_sim(weir, status);
  add_remote_commands(weir, status);
  add_cluster(weir, status);
  add_top(weir, status);
  add_lctl(weir, status);
  const auto named = [&](const CLI::App* sub) { return sub->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && weir.get_subcommands(named).empty()) {
    print_error("weir: unknown subcommand {}; try 'weir --help'\n", quote(argv[1]));
    return static_cast<int>(Exit::kUsage);
  }
  try {
    weir.parse(argc, argv);
    if (status == static_cast<int>(Exit::kOk)) check_output();
  } catch (const CLI::Success& success) {
    return weir.exit(success);
  } catch (const CLI::ParseError& error) {
    return report_misuse(weir, error);
  } catch (const Failure& failure) {
    print_error("weir {}: {}\n", weir.get_subcommands().front()->get_name(),
                visible(failure.message));
    return static_cast<int>(failure.status);
  }
  return status;
}

}  // namespace
}  // namespace weir::app

int main(int argc, char** argv) {
  try {
    return weir::app::run(argc, argv);
  } catch (const std::exception& error) {  // out of memory, or our own mistake
    weir::app::print_error("weir: {}\n", error.what());
    return static_cast<int>(weir::app::Exit::kSoftware);
  }
}
