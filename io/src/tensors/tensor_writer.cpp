#include "tensor_writer.hpp"

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/seconds.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <optional>
#include <utility>

#include "files/direct_file.hpp"
#include "files/file_descriptor.hpp"
#include "formats/element_bytes.hpp"
#include "parallel/run_collectively.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t largest_chunk = std::int64_t{1} << 20;   // elements
constexpr std::int64_t smallest_chunk = std::int64_t{1} << 14;  // elements
/// Elements that travel at the same time, to all writers together: they bound the memory of a rank that sends.
constexpr std::int64_t round_elements = std::int64_t{1} << 23;

/// The chunks of one file, in the order of their offsets.
class Chunks {
 public:
  Chunks(TensorFile const& file, std::int64_t max) : file_(file), max_(max) {}

  bool done() const { return extent_ == file_.extents.size(); }
  /// The offset of the next chunk in the file.
  std::int64_t offset() const {
    TensorExtent const& extent = file_.extents[extent_];
    return extent.offset + begin_ * extent.element_bytes;
  }
  TensorChunk next() {
    TensorExtent const& extent = file_.extents[extent_];
    std::int64_t const end = std::min(begin_ + max_, extent.elements);
    TensorChunk const chunk{extent.tensor, extent.key, {begin_, end}};
    begin_ = end;
    if (begin_ == extent.elements) {
      begin_ = 0;
      ++extent_;
    }
    return chunk;
  }

 private:
  TensorFile const& file_;
  std::int64_t max_;
  std::size_t extent_ = 0;
  std::int64_t begin_ = 0;
};

/// A new file that is written sequentially, and hashed from the same memory, by a thread that does nothing
/// else (no MPI, no HDF5) while its owner fills the next buffer.
class FileWriter {
 public:
  /// Throws Error if the file exists or cannot be made.
  explicit FileWriter(fs::path const& path) : file_(path), hash_(path.filename().string()) {}

  /// The bytes queued so far.
  std::int64_t position() const { return position_; }
  /// Memory for the next bytes. Without `queue` the next call returns the same.
  std::span<std::uint8_t> buffer(std::size_t bytes) {
    latest_ = bytes;
    if (filling_.memory.size() < filling_.filled + bytes) {
      filling_.memory.resize(filling_.filled + bytes);
    }
    return std::span(filling_.memory).subspan(filling_.filled, bytes);
  }
  /// Queues the bytes of the last `buffer`. Throws the error of bytes that were queued before.
  void queue() {
    position_ += static_cast<std::int64_t>(latest_);
    filling_.filled += std::exchange(latest_, 0);
    if (filling_.filled >= DirectBuffer::bytes) {
      start();
    }
  }

  /// Waits until everything is written, then, if `durable`, until it is on the disk. Throws the first error of the
  /// writing.
  FileDigest finish(bool durable) {
    start();
    wait();
    auto const began = SteadyClock::now();
    file_.finish(durable);
    write_seconds_ += seconds_since(began);
    return hash_.finish();
  }

  /// After `finish`: seconds spent on hashing, and on writing and fsync.
  double digest_seconds() const { return digest_seconds_; }
  double write_seconds() const { return write_seconds_; }

 private:
  /// Bytes in a vector that does not shrink, so that its memory is used again.
  struct Buffer {
    std::vector<std::uint8_t> memory;
    std::size_t filled = 0;
  };

  /// Waits for the thread, and throws its error.
  void wait() {
    if (thread_) {
      thread_->finish();
      thread_.reset();
    }
  }
  /// Hands the buffer to a thread.
  void start() {
    wait();
    std::swap(filling_, writing_);
    filling_.filled = 0;
    thread_.emplace([this] { write(std::span(writing_.memory).first(writing_.filled)); });
  }
  void write(std::span<std::uint8_t const> bytes) {
    auto const began = SteadyClock::now();
    hash_.add(bytes);
    digest_seconds_ += seconds_since(began);
    auto const hashed = SteadyClock::now();
    file_.append(bytes);
    write_seconds_ += seconds_since(hashed);
  }

  DirectFile file_;
  std::int64_t position_ = 0;
  Buffer filling_;
  std::size_t latest_ = 0;  ///< bytes of the last `buffer`

  // The thread's own, until it has ended.
  Buffer writing_;
  FileHash hash_;
  double digest_seconds_ = 0;
  double write_seconds_ = 0;

  std::optional<BackgroundThread> thread_;  ///< the last member: it ends before those that it uses
};

/// Queues the image's bytes up to `end`.
void write_image(FileWriter& file, hdf5::FileImage& image, std::int64_t end) {
  while (file.position() < end) {
    image.read(file.position(),
               file.buffer(static_cast<std::size_t>(std::min(manifest_block_bytes, end - file.position()))));
    file.queue();
  }
}

/// Throws Error unless the numbers may be kept.
void check_numbers(std::span<float const> numbers, StreamedTensor const& tensor, std::string const& key) {
  std::string const refused = refused_values(numbers, key);
  if (!refused.empty()) {
    throw Error("parameter " + tensor.name + ": its " + key + " holds " + refused +
                    ", so this state is not kept; the earlier checkpoints are unchanged: lower optimizer.learning_rate "
                    "and start again, or go back further with `heddle train RUN.toml --resume-from STEP` (`heddle "
                    "checkpoint list` shows the steps)",
                ExitCode::loss_not_finite);
  }
}

/// One rank's part of the streaming.
class Streaming {
 public:
  Streaming(std::vector<int> const& writers, int rank, TensorFiles const& planned, TensorStream& tensors)
      : writers_(writers), planned_(planned), tensors_(tensors) {
    std::int64_t const files = std::ssize(planned.files);
    std::int64_t const max = std::clamp(round_elements / files, smallest_chunk, largest_chunk);
    for (std::size_t file = 0; file < planned.files.size(); ++file) {
      chunks_.emplace_back(planned.files[file], max);
      if (writers[file] == rank) {
        own_ = file;
      }
    }
  }

  /// The number of this rank's file, if it writes one.
  std::optional<std::size_t> own() const { return own_; }

  /// Writes this rank's file, and sends the elements of all others. Errors of the file are kept for rethrow(): other
  /// ranks wait for what this one has to send.
  void run(TensorWriting const& writing) {
    auto const began = SteadyClock::now();
    std::optional<FileWriter> file;
    error_.attempt([&] {
      if (own_) {
        file.emplace(writing.directory / tensor_file_name(*own_));
      }
    });
    while (round(file)) {
    }
    error_.attempt([&] {
      if (file) {
        hdf5::FileImage& image = *planned_.files[*own_].image;
        write_image(*file, image, image.size());
        digest_ = file->finish(writing.durable);
        times_.digest = file->digest_seconds();
        times_.write = file->write_seconds();
      }
    });
    times_.all = seconds_since(began);
  }

  void rethrow() const { error_.rethrow(); }

  FileDigest const& digest() const { return digest_; }
  WriteTimes const& times() const { return times_; }

 private:
  /// Moves the next chunk of every file. Returns false if there are none left.
  bool round(std::optional<FileWriter>& file) {
    bool moved = false;
    std::optional<TensorChunk> mine;
    std::int64_t offset = 0;
    for (std::size_t number = 0; number < chunks_.size(); ++number) {
      if (chunks_[number].done()) {
        continue;
      }
      moved = true;
      if (number == own_) {
        offset = chunks_[number].offset();
        mine = chunks_[number].next();
      } else {
        tensors_.send(chunks_[number].next(), writers_[number]);
      }
    }
    if (mine) {
      receive(file, *mine, offset);
    }
    tensors_.wait();
    return moved;
  }

  /// Receives a chunk, which is at `offset` of the file, into the file's buffer, or beside it if it is to be rounded or
  /// follows an odd number of rounded elements. After an error the chunk is received and dropped, for those who send
  /// it.
  void receive(std::optional<FileWriter>& file, TensorChunk const& chunk, std::int64_t offset) {
    StreamedTensor const& tensor = tensors_.tensors()[chunk.tensor];
    auto const count = static_cast<std::size_t>(chunk.elements.count());
    error_.attempt([&] { write_image(*file, *planned_.files[*own_].image, offset); });
    bool beside = error_.found() || tensor.dtype != DType::float32;
    std::uint8_t* const memory = beside ? nullptr : file->buffer(count * sizeof(float)).data();
    beside = beside || reinterpret_cast<std::uintptr_t>(memory) % alignof(float) != 0;
    beside_.resize(beside ? count : 0);
    std::span<float> const numbers(beside ? beside_.data() : reinterpret_cast<float*>(memory), count);
    tensors_.receive(chunk, numbers);
    error_.attempt([&] {
      check_numbers(numbers, tensor, tensor.keys[chunk.key]);
      if (beside) {
        auto const bytes = element_bytes(name_of(tensor.dtype), numbers, halves_, tensor.name, chunk.elements.begin);
        std::ranges::copy(bytes, file->buffer(bytes.size()).begin());
      }
      file->queue();
    });
  }

  std::vector<int> const& writers_;
  TensorFiles const& planned_;
  TensorStream& tensors_;
  std::vector<Chunks> chunks_;  ///< of each file
  std::optional<std::size_t> own_;
  std::vector<float> beside_;
  std::vector<std::uint16_t> halves_;
  FirstError error_;
  FileDigest digest_;
  WriteTimes times_;
};

/// The longest of all ranks, for each of the times.
WriteTimes longest_of_all(Communicator const& world, WriteTimes const& own) {
  WriteTimes longest;
  for (WriteTimes const& times : gather_values(world, own)) {
    longest.all = std::max(longest.all, times.all);
    longest.write = std::max(longest.write, times.write);
    longest.digest = std::max(longest.digest, times.digest);
    longest.read_back = std::max(longest.read_back, times.read_back);
  }
  return longest;
}

}  // namespace

WrittenTensors write_tensor_files(Communicator const& world, TensorWriting const& writing, TensorStream& tensors) {
  Streaming streaming(writing.writers, world.rank(), writing.planned, tensors);
  streaming.run(writing);
  WriteTimes times = streaming.times();
  run_collectively(world, [&] {
    streaming.rethrow();
    if (streaming.own() && writing.durable) {
      writing.reached("tensors_synced");
      auto const began = SteadyClock::now();
      fs::path const path = writing.directory / tensor_file_name(*streaming.own());
      require_equal(path, streaming.digest());
      times.read_back = seconds_since(began);
      writing.reached("tensors_read_back");
    }
  });
  Manifest own;
  if (streaming.own()) {
    own.files.push_back(streaming.digest());
  }
  WrittenTensors written{{}, longest_of_all(world, times)};
  for (std::string const& text : gather_texts(world, streaming.own() ? manifest_text(own) : "")) {
    if (!text.empty()) {
      written.files.push_back(parse_manifest(text, "another rank's digests").files.front());
    }
  }
  return written;
}

}  // namespace heddle
