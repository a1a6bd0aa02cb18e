// SPDX-License-Identifier: Apache-2.0
//
// lustrefs MOUNTPOINT [KEY=VALUE ...]: the files of the modelled Lustre server as a FUSE tree, in
// real time, so that the driver's binary meets real file semantics: one job for each read(2),
// errno from write(2), files that end where they end.
//
//   cpts=2 seed=7 vanish=320 rate=400 threads=16      of the server
//   job=NAME,COUNT,WINDOW                             COUNT times WINDOW requests, without end
//   burst=NAME,REQUESTS,EVERY_MS,WINDOW               so many every so often
//   idle=COUNT                                        jobs that were there once
//   rule=COMMAND                                      of an administrator, after tbf has started
//   tbf=jobid                                         the type to start with; none: fifo
//   mds=RATE                                          an MDS beside the OSS, with the same threads
//   mds-tbf=jobid mds-job=NAME,OPERATION,COUNT,WINDOW the same for it; mkdir takes ten times as
//   long
//
// Besides the server's own files there is /control: writing "restart" forgets rules and policy,
// "fail N" makes every write answer errno N, "block MS" makes every open of job_stats wait until
// then, and reading it tells what was served of each job.
#define FUSE_USE_VERSION 31
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fuse.h>

#include "weir/host/clock.h"
#include "weir/sim/lustre_model.h"

namespace {

using weir::Instant;
using weir::JobId;
using weir::Nanoseconds;

constexpr std::string_view kControl = "/control";

struct Client {
  JobId job;
  std::size_t server = 0;
  std::string operation;
  std::uint32_t window = 1;
  std::uint32_t outstanding = 0;
  std::uint32_t cpt = 0;
  std::uint64_t backlog = UINT64_MAX;
  std::uint64_t burst = 0;
  Nanoseconds every{0};
  Instant next = weir::kNever;
};

// The model, moved on to the present whenever it is read, and by a thread in between.
class Live {
 public:
  Live(weir::sim::LustreServer::Options options, std::uint64_t seed) : began_(weir::host::now()) {
    servers_.push_back(
        std::make_unique<weir::sim::LustreServer>(std::move(options), weir::Rng(seed)));
  }

  std::mutex mutex;
  std::condition_variable changed;

  Instant now() const { return Instant{weir::host::now() - began_}; }
  // The MDS too, if there is one.
  std::vector<std::unique_ptr<weir::sim::LustreServer>>& servers() { return servers_; }
  weir::sim::LustreServer& server() { return *servers_.front(); }
  // That has the path; else the first one, which says so.
  weir::sim::LustreServer& server_of(std::string_view path) {
    for (const auto& each : servers_) {
      const auto paths = each->paths();
      if (std::find(paths.begin(), paths.end(), path) != paths.end()) return *each;
    }
    return server();
  }
  std::vector<std::string> paths() const {
    std::vector<std::string> all;
    for (const auto& each : servers_) {
      for (std::string& path : each->paths()) all.push_back(std::move(path));
    }
    return all;
  }
  Instant blocked_until{};
  void add(const Client& client) { clients_.push_back(client); }

  // With the mutex held.
  void advance() {
    const Instant until = now();
    for (;;) {
      const Instant next = first();
      if (next > until) break;
      for (const auto& each : servers_) {
        each->run(next, [this](const weir::sim::Rpc& rpc, Instant, Instant at) {
          Client& client = clients_[rpc.tag];
          --client.outstanding;
          ++served_[std::string(client.job.text())];
          issue(rpc.tag, at);
        });
      }
      for (std::size_t i = 0; i < clients_.size(); ++i) {
        if (clients_[i].next > next) continue;
        clients_[i].backlog += clients_[i].burst;
        clients_[i].next += clients_[i].every;
        issue(i, next);
      }
    }
    next_ = first();
  }
  Instant next() const { return next_; }

  void begin() {
    for (std::size_t i = 0; i < clients_.size(); ++i) issue(i, now());
  }

  // A request each, so that there are counters.
  void visit(int count) {
    for (int i = 0; i < count; ++i) {
      Client client;
      client.job = JobId(fmt::format("idle.{}", i));
      client.backlog = 1;
      add(client);
    }
  }

  std::string served() const {
    std::string text;
    for (const auto& [job, count] : served_) text += fmt::format("{} {}\n", job, count);
    return text;
  }

 private:
  Instant first() const {
    Instant next = weir::kNever;
    for (const auto& each : servers_) next = std::min(next, each->next());
    for (const Client& client : clients_) next = std::min(next, client.next);
    return next;
  }

  void issue(std::size_t index, Instant at) {
    Client& client = clients_[index];
    while (client.backlog > 0 && client.outstanding < client.window) {
      if (client.backlog != UINT64_MAX) --client.backlog;
      ++client.outstanding;
      weir::sim::Rpc rpc;
      rpc.job = client.job;
      rpc.tag = index;
      rpc.cpt = client.cpt;
      rpc.operation = client.operation;
      servers_[client.server]->arrive(rpc, at);
    }
  }

  std::vector<std::unique_ptr<weir::sim::LustreServer>> servers_;
  Instant began_;
  Instant next_{};
  std::deque<Client> clients_;  // requests have views of their operations
  std::map<std::string, std::uint64_t> served_;
};

std::unique_ptr<Live> live;

// What one open file was read as: real files are made for each reader.
struct Opened {
  std::vector<std::string> parts;
};

int errno_of(const weir::Error& error) { return -static_cast<int>(error.code); }

bool is_file(const std::string& path) {
  if (path == kControl) return true;
  const auto paths = live->paths();
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

bool is_folder(const std::string& path) {
  if (path == "/") return true;
  for (const std::string& each : live->paths()) {
    if (each.starts_with(path + "/")) return true;
  }
  return false;
}

int get_attributes(const char* path, struct stat* status, fuse_file_info*) {
  const std::lock_guard lock(live->mutex);
  std::memset(status, 0, sizeof *status);
  if (is_folder(path)) {
    status->st_mode = S_IFDIR | 0755;
    status->st_nlink = 2;
  } else if (is_file(path)) {
    status->st_mode = S_IFREG | 0644;
    status->st_nlink = 1;
  } else {
    return -ENOENT;
  }
  return 0;
}

int read_folder(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
                fuse_readdir_flags) {
  const std::lock_guard lock(live->mutex);
  const std::string folder = std::string(path) == "/" ? "/" : std::string(path) + "/";
  std::set<std::string> names = {".", ".."};
  if (folder == "/") names.insert(std::string(kControl.substr(1)));
  for (const std::string& each : live->paths()) {
    if (!each.starts_with(folder)) continue;
    const std::string rest = each.substr(folder.size());
    names.insert(rest.substr(0, rest.find('/')));
  }
  for (const std::string& name : names) {
    fill(buffer, name.c_str(), nullptr, 0, static_cast<fuse_fill_dir_flags>(0));
  }
  return 0;
}

int open_file(const char* path, fuse_file_info* file) {
  std::unique_lock lock(live->mutex);
  while (std::string_view(path).ends_with("job_stats") && live->now() < live->blocked_until) {
    live->changed.wait_for(lock, live->blocked_until - live->now());
  }
  if (!is_file(path)) return -ENOENT;
  auto opened = std::make_unique<Opened>();
  if ((file->flags & O_ACCMODE) != O_WRONLY) {
    live->advance();
    if (path == kControl) {
      opened->parts = {live->served()};
    } else {
      auto parts = live->server_of(path).read_parts(path, live->now());
      if (!parts) return errno_of(parts.error());
      opened->parts = std::move(*parts);
    }
  }
  file->direct_io = 1;  // short reads reach the reader
  file->fh = reinterpret_cast<std::uint64_t>(opened.release());
  return 0;
}

Opened* opened_by(const fuse_file_info* file) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a number is all that FUSE keeps for us
  return reinterpret_cast<Opened*>(file->fh);
}

// One part a call, as seq_file does with entries that are large.
int read_file(const char*, char* buffer, std::size_t size, off_t offset, fuse_file_info* file) {
  const Opened& opened = *opened_by(file);
  auto at = static_cast<std::size_t>(offset);
  for (const std::string& part : opened.parts) {
    if (at >= part.size()) {
      at -= part.size();
      continue;
    }
    const std::size_t count = std::min(size, part.size() - at);
    part.copy(buffer, count, at);
    return static_cast<int>(count);
  }
  return 0;
}

int write_file(const char* path, const char* text, std::size_t size, off_t, fuse_file_info*) {
  const std::lock_guard lock(live->mutex);
  live->advance();
  const std::string_view words(text, size);
  if (path == kControl) {
    int error = 0;
    if (words.starts_with("block ")) {
      int ms = 0;
      std::from_chars(text + 6, text + size, ms);
      live->blocked_until = live->now() + std::chrono::milliseconds{ms};
    }
    if (words.starts_with("fail ")) std::from_chars(text + 5, text + size, error);
    for (const auto& each : live->servers()) {
      if (words.starts_with("restart")) each->restart();
      if (words.starts_with("fail ")) each->set_write_error(error);
    }
    return static_cast<int>(size);
  }
  const auto done = live->server_of(path).write(path, words, live->now());
  live->advance();
  live->changed.notify_all();
  return done ? static_cast<int>(size) : errno_of(done.error());
}

int release_file(const char*, fuse_file_info* file) {
  delete opened_by(file);
  return 0;
}

int truncate_file(const char*, off_t, fuse_file_info*) { return 0; }

void* begin_life(fuse_conn_info*, fuse_config* config) {
  config->kernel_cache = 0;
  config->attr_timeout = 0;
  config->entry_timeout = 0;
  std::thread([] {
    std::unique_lock lock(live->mutex);
    live->begin();
    for (;;) {
      live->advance();
      const Nanoseconds wait =
          std::clamp(live->next() - live->now(), Nanoseconds{100'000}, Nanoseconds{5'000'000});
      live->changed.wait_for(lock, wait);
    }
  }).detach();
  return nullptr;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

void add_clients(const std::string& key, const std::string& value, std::uint32_t cpts) {
  const auto parts = split(value);
  const auto number = [&](std::size_t i) { return std::stoul(parts.at(i)); };
  if (key == "job") {
    for (std::uint32_t i = 0; i < number(1); ++i) {
      Client client;
      client.job = JobId(parts[0]);
      client.window = static_cast<std::uint32_t>(number(2));
      client.cpt = i % cpts;
      live->add(client);
    }
  }
  if (key == "mds-job") {
    for (std::uint32_t i = 0; i < number(2); ++i) {
      Client client;
      client.job = JobId(parts[0]);
      client.server = 1;
      client.operation = parts[1];
      client.window = static_cast<std::uint32_t>(number(3));
      client.cpt = i % cpts;
      live->add(client);
    }
  }
  if (key == "burst") {
    Client client;
    client.job = JobId(parts[0]);
    client.burst = number(1);
    client.backlog = 0;
    client.every = std::chrono::milliseconds{number(2)};
    client.next = Instant{client.every};
    client.window = static_cast<std::uint32_t>(number(3));
    live->add(client);
  }
  if (key == "idle") live->visit(std::stoi(value));
}

int serve(int argc, char** argv) {
  weir::sim::LustreServer::Options options;
  options.late_timers = true;
  std::uint64_t rate = 400;
  std::uint64_t seed = 1;
  std::uint64_t mds_rate = 0;
  std::string type;
  std::string mds_type;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos) return 64;
    pairs.emplace_back(argument.substr(0, equals), argument.substr(equals + 1));
    const auto& [key, value] = pairs.back();
    if (key == "cpts") options.cpts = static_cast<std::uint32_t>(std::stoul(value));
    if (key == "seed") seed = std::stoul(value);
    if (key == "vanish") {
      options.stats.vanish_permille = static_cast<std::uint32_t>(std::stoul(value));
    }
    if (key == "rate") rate = std::stoul(value);
    if (key == "threads") options.store.slots = static_cast<std::uint32_t>(std::stoul(value));
    if (key == "tbf") type = value;
    if (key == "mds") mds_rate = std::stoul(value);
    if (key == "mds-tbf") mds_type = value;
  }
  const auto base_of = [&options](std::uint64_t a_second) {
    return Nanoseconds{
        static_cast<std::int64_t>(std::uint64_t{1'000'000'000} * options.store.slots / a_second)};
  };
  options.store.service.base = base_of(rate);
  const std::uint32_t cpts = options.cpts;
  live = std::make_unique<Live>(options, seed);
  if (mds_rate > 0) {
    options.kind = weir::sim::LustreStats::Kind::kMdt;
    options.osts = {"lustre-MDT0000"};
    options.operation_percent = {{"mkdir", 1000}};
    options.store.service.base = base_of(mds_rate);
    live->servers().push_back(std::make_unique<weir::sim::LustreServer>(options, weir::Rng(seed)));
  }
  const std::string service(weir::sim::LustreServer::kService);
  if (!type.empty()) {
    if (!live->server().write(service + "nrs_policies", "tbf " + type, {})) return 65;
  }
  const std::string mds(weir::sim::LustreServer::kMdsService);
  if (!mds_type.empty()) {
    if (!live->server_of(mds + "nrs_policies").write(mds + "nrs_policies", "tbf " + mds_type, {})) {
      return 65;
    }
  }
  for (const auto& [key, value] : pairs) {
    add_clients(key, value, cpts);
    if (key == "rule" && !live->server().write(service + "nrs_tbf_rule", value, {})) return 65;
  }
  fuse_operations operations{};
  operations.getattr = get_attributes;
  operations.readdir = read_folder;
  operations.open = open_file;
  operations.read = read_file;
  operations.write = write_file;
  operations.release = release_file;
  operations.truncate = truncate_file;
  operations.init = begin_life;
  char foreground[] = "-f";
  char* arguments[] = {argv[0], argv[1], foreground, nullptr};
  // The thread that lives on between requests goes with the process.
  std::_Exit(fuse_main(3, arguments, &operations, nullptr));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: lustrefs MOUNTPOINT [KEY=VALUE ...]\n", stderr);
    return 64;
  }
  return serve(argc, argv);
}
