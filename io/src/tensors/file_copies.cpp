#include "file_copies.hpp"

#include <utility>

#include "files/direct_file.hpp"
#include "parallel/thread_without_signals.hpp"

namespace heddle {

FileCopies::FileCopies(std::vector<Item> items) : items_(std::move(items)) {
  if (items_.empty()) {
    done_ = true;
    return;
  }
  thread_ = thread_without_signals([this] { run(); });
}

FileCopies::~FileCopies() {
  stop_ = true;
  if (thread_.joinable()) {
    thread_.join();
  }
}

void FileCopies::finish() {
  if (thread_.joinable()) {
    thread_.join();
  }
  if (error_) {
    std::rethrow_exception(error_);
  }
}

void FileCopies::run() {
  try {
    for (Item const& item : items_) {
      copy(item);
    }
  } catch (...) {
    error_ = std::current_exception();
  }
  done_.store(true, std::memory_order_release);
}

void FileCopies::copy(Item const& item) {
  DirectFile to(item.to);
  std::vector<std::uint8_t> bytes;
  for (std::int64_t block = 0; block < item.from->blocks(); ++block) {
    if (stop_) {
      return;
    }
    bytes.resize(static_cast<std::size_t>(block_bytes(item.digest, block)));
    item.from->read(block * manifest_block_bytes, bytes);
    to.append(bytes);
  }
  to.finish(true);
  if (!stop_) {
    require_equal(item.to, item.digest);
  }
}

}  // namespace heddle
