#include "tensor_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <exception>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <optional>

#include "files/file_descriptor.hpp"
#include "hosts.hpp"
#include "together.hpp"

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
  Chunks(TensorFile const& file, std::int64_t most) : file_(file), most_(most) {}

  bool done() const { return extent_ == file_.extents.size(); }
  /// The offset of the next chunk in the file.
  std::int64_t offset() const {
    return file_.extents[extent_].offset + begin_ * static_cast<std::int64_t>(sizeof(float));
  }
  TensorChunk next() {
    TensorExtent const& extent = file_.extents[extent_];
    std::int64_t const end = std::min(begin_ + most_, extent.elements);
    TensorChunk const chunk{extent.tensor, extent.part, {begin_, end}};
    begin_ = end;
    if (begin_ == extent.elements) {
      begin_ = 0;
      ++extent_;
    }
    return chunk;
  }

 private:
  TensorFile const& file_;
  std::int64_t most_;
  std::size_t extent_ = 0;
  std::int64_t begin_ = 0;
};

/// A new file that is written from its begin to its end, and hashed from the same memory.
class FileWriter {
 public:
  explicit FileWriter(fs::path path)
      : path_(std::move(path)), file_(path_, O_WRONLY | O_CREAT | O_EXCL), hash_(path_.filename().string()) {
    if (!file_.is_open()) {
      fail_with_errno(path_, "create the file");
    }
  }

  std::int64_t position() const { return position_; }

  void write(std::span<std::uint8_t const> bytes) {
    hash_.add(bytes);
    write_at(file_, path_, position_, bytes);
    position_ += std::ssize(bytes);
  }

  /// Writes the image's bytes up to `end`.
  void write_image(hdf5::FileImage& image, std::int64_t end) {
    std::vector<std::uint8_t> bytes(
        static_cast<std::size_t>(std::min(manifest_block_bytes, std::max<std::int64_t>(end - position_, 0))));
    while (position_ < end) {
      bytes.resize(static_cast<std::size_t>(std::min(std::ssize(bytes), end - position_)));
      image.read(position_, bytes);
      write(bytes);
    }
  }

  /// Waits until the file is on the disk. A failed fsync is an error for good: the kernel may have dropped the pages
  /// that it could not write, so that a second fsync would succeed without them.
  void sync() const {
    if (::fsync(file_.get()) != 0) {
      fail_with_errno(path_, "write to the disk");
    }
  }

  FileDigest digest() { return hash_.finish(); }

 private:
  fs::path path_;
  FileDescriptor file_;
  FileHash hash_;
  std::int64_t position_ = 0;
};

/// Throws Error unless the numbers may be kept.
void check_numbers(std::span<float const> numbers, StreamedTensor const& tensor, TensorPart part) {
  constexpr std::uint32_t exponent = 0x7F800000;
  std::size_t not_finite = 0;
  std::size_t negative = 0;
  for (float const number : numbers) {
    not_finite += (std::bit_cast<std::uint32_t>(number) & exponent) == exponent ? 1 : 0;
    negative += number < 0 ? 1 : 0;
  }
  bool const refused_sign = part == TensorPart::second_moment && negative > 0;
  if (not_finite > 0 || refused_sign) {
    throw Error("parameter " + tensor.name + ": its " + part_name(part) +
                    (not_finite > 0 ? " holds numbers that are not finite" : " holds negative numbers") +
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
    std::int64_t const most = std::clamp(round_elements / files, smallest_chunk, largest_chunk);
    for (std::size_t file = 0; file < planned.files.size(); ++file) {
      chunks_.emplace_back(planned.files[file], most);
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
    std::optional<FileWriter> file;
    attempt([&] {
      if (own_) {
        file.emplace(writing.directory / tensor_file_name(*own_));
      }
    });
    while (round(file)) {
    }
    attempt([&] {
      if (file) {
        hdf5::FileImage& image = *planned_.files[*own_].image;
        file->write_image(image, image.size());
        if (writing.durable) {
          file->sync();
        }
        digest_ = file->digest();
      }
    });
  }

  void rethrow() const {
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

  FileDigest const& digest() const { return digest_; }

 private:
  template <class Action>
  void attempt(Action const& action) {
    if (!error_) {
      try {
        action();
      } catch (...) {
        error_ = std::current_exception();
      }
    }
  }

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
      numbers_.resize(static_cast<std::size_t>(mine->elements.count()));
      tensors_.receive(*mine, numbers_);
      attempt([&] {
        check_numbers(numbers_, tensors_.tensors()[mine->tensor], mine->part);
        file->write_image(*planned_.files[*own_].image, offset);
        auto const bytes = std::as_bytes(std::span(numbers_));
        file->write({reinterpret_cast<std::uint8_t const*>(bytes.data()), bytes.size()});
      });
    }
    tensors_.wait();
    return moved;
  }

  std::vector<int> const& writers_;
  TensorFiles const& planned_;
  TensorStream& tensors_;
  std::vector<Chunks> chunks_;  ///< of each file
  std::optional<std::size_t> own_;
  std::vector<float> numbers_;
  std::exception_ptr error_;
  FileDigest digest_;
};

}  // namespace

std::vector<int> choose_writers(Communicator const& world, std::int64_t wanted) {
  std::vector<int> writers;
  if (wanted > 0) {
    auto const count = static_cast<int>(std::min<std::int64_t>(wanted, world.size()));
    for (int writer = 0; writer < count; ++writer) {
      writers.push_back(static_cast<int>(static_cast<std::int64_t>(writer) * world.size() / count));
    }
    return writers;
  }
  for (std::vector<int> const& ranks : Hosts::gather(world).ranks) {
    writers.push_back(ranks.front());
  }
  return writers;
}

std::vector<FileDigest> write_tensor_files(Communicator const& world, TensorWriting const& writing,
                                           TensorStream& tensors) {
  Streaming streaming(writing.writers, world.rank(), writing.planned, tensors);
  streaming.run(writing);
  together(world, [&] {
    streaming.rethrow();
    if (streaming.own() && writing.durable) {
      writing.reached("tensors_synced");
      fs::path const path = writing.directory / tensor_file_name(*streaming.own());
      drop_from_cache(path);
      require_equal(path, streaming.digest());
      writing.reached("tensors_read_back");
    }
  });
  Manifest own;
  if (streaming.own()) {
    own.files.push_back(streaming.digest());
  }
  std::vector<FileDigest> digests;
  for (std::string const& text : gather_texts(world, streaming.own() ? manifest_text(own) : "")) {
    if (!text.empty()) {
      digests.push_back(parse_manifest(text, "another rank's digests").files.front());
    }
  }
  return digests;
}

}  // namespace heddle
