#include "file_copies.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "files/file_descriptor.hpp"

namespace heddle {

FileCopies::FileCopies(std::vector<Item> items) : items_(std::move(items)) {
  if (items_.empty()) {
    done_ = true;
    return;
  }
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
  FileDescriptor const to(item.to, O_WRONLY | O_CREAT | O_EXCL);
  if (!to.is_open()) {
    fail_with_errno(item.to, "create the file");
  }
  std::vector<std::uint8_t> bytes;
  for (std::int64_t block = 0; block < item.from->blocks(); ++block) {
    if (stop_) {
      return;
    }
    bytes.resize(static_cast<std::size_t>(block_bytes(item.digest, block)));
    item.from->read(block * manifest_block_bytes, bytes);
    write_at(to, item.to, block * manifest_block_bytes, bytes);
  }
  // A failed fsync is an error for good: a second one may succeed without the data.
  if (::fsync(to.get()) != 0) {
    fail_with_errno(item.to, "write to the disk");
  }
  if (!stop_) {
    drop_from_cache(item.to);
    require_equal(item.to, item.digest);
  }
}

}  // namespace heddle
