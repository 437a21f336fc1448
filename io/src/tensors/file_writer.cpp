#include "file_writer.hpp"

#include <heddle/core/base/seconds.hpp>
#include <utility>

namespace heddle {

namespace {

constexpr int buffers = 4;

}  // namespace

FileWriter::FileWriter(std::filesystem::path const& path)
    : file_(path), free_(buffers - 1), hash_(path.filename().string()), thread_([this] { work(); }) {}

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
  thread_.finish();
  if (error_) {
    std::rethrow_exception(error_);
  }
  auto const began = SteadyClock::now();
  file_.finish(durable);
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
  auto const began = SteadyClock::now();
  hash_.add(bytes);
  digest_seconds_ += seconds_since(began);
  auto const hashed = SteadyClock::now();
  file_.append(bytes);
  write_seconds_ += seconds_since(hashed);
}

}  // namespace heddle
