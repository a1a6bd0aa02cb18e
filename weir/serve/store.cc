// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/store.h"

#include "weir/serve/file_store.h"
#include "weir/serve/memory_store.h"
#include "weir/serve/no_store.h"
#include "weir/serve/shaped_store.h"

namespace weir::serve {
namespace {

Result<std::unique_ptr<Store>> open_plain(const StoreOptions& options, bool read_only,
                                          host::IoLoop& io) {
  if (options.is_remote()) return std::unique_ptr<Store>(std::make_unique<NoStore>());
  if (options.kind == StoreOptions::Kind::kMemory) return MemoryStore::create(*options.size);
  return FileStore::open(options, read_only, io);
}

}  // namespace

Result<void> Store::reshape(const Shape& /*shape*/, Instant /*now*/) {
  return fail(std::errc::not_supported, "store", "it was not opened as a shaped store",
              "open it as shaped:...:STORE");
}

Result<std::unique_ptr<Store>> open_store(const StoreOptions& options, bool read_only,
                                          host::IoLoop& io) {
  auto store = open_plain(options, read_only, io);
  if (!store || !options.shape) return store;
  return std::unique_ptr<Store>(std::make_unique<ShapedStore>(std::move(*store), *options.shape));
}

}  // namespace weir::serve
