#include "file_writer.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace heddle {

namespace {

constexpr int buffers = 4;
constexpr std::int64_t writeback_bytes = std::int64_t{8} << 20;

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// Starts a thread to which the system delivers no signals.
template <class Action>
std::thread thread_without_signals(Action action) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(action));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

FileWriter::FileWriter(std::filesystem::path path)
    : path_(std::move(path)),
      file_(path_, O_WRONLY | O_CREAT | O_EXCL),
      free_(buffers - 1),
      hash_(path_.filename().string()) {
  if (!file_.is_open()) {
    fail_with_errno(path_, "create the file");
  }
  thread_ = thread_without_signals([this] { work(); });
}

FileWriter::~FileWriter() {
  stop(true);
}

void FileWriter::stop(bool abandon) {
  {
    std::lock_guard const lock(mutex_);
    ends_ = true;
    abandoned_ = abandon;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::span<std::uint8_t> FileWriter::buffer(std::size_t bytes) {
  filling_.resize(bytes);
  return filling_;
}

void FileWriter::queue() {
  position_ += std::ssize(filling_);
  std::unique_lock lock(mutex_);
  queued_.push_back(std::move(filling_));
  changed_.notify_all();
  changed_.wait(lock, [this] { return !free_.empty(); });
  filling_ = std::move(free_.back());
  free_.pop_back();
}

FileDigest FileWriter::finish(bool durable) {
  stop(false);
  if (error_) {
    std::rethrow_exception(error_);
  }
  auto const began = std::chrono::steady_clock::now();
  if (durable && ::fsync(file_.get()) != 0) {
    fail_with_errno(path_, "write to the disk");
  }
  write_seconds_ += seconds_since(began);
  return hash_.finish();
}

void FileWriter::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !queued_.empty(); });
    if (queued_.empty() || abandoned_) {
      return;
    }
    Buffer bytes = std::move(queued_.front());
    queued_.pop_front();
    if (!error_) {
      lock.unlock();
      std::exception_ptr error;
      try {
        write(bytes);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
    }
    free_.push_back(std::move(bytes));
    changed_.notify_all();
  }
}

void FileWriter::write(Buffer const& bytes) {
  auto const began = std::chrono::steady_clock::now();
  hash_.add(bytes);
  digest_seconds_ += seconds_since(began);
  auto const hashed = std::chrono::steady_clock::now();
  write_at(file_, path_, written_, bytes);
  written_ += std::ssize(bytes);
  start_writeback();
  write_seconds_ += seconds_since(hashed);
}

void FileWriter::start_writeback() {
  if (written_ - writeback_ >= writeback_bytes) {
    // Only a hint: fsync is what counts, and reports errors.
    ::sync_file_range(file_.get(), writeback_, written_ - writeback_, SYNC_FILE_RANGE_WRITE);
    writeback_ = written_;
  }
}

}  // namespace heddle
