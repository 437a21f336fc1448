#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/io/formats/npz.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <limits>

#include "files/file_descriptor.hpp"
#include "files/pending_file.hpp"
#include "npz_header.hpp"

namespace heddle {

struct NpzFile::Member {
  ZipRecord record;
  std::int64_t begin = 0;         ///< of its stored bytes in the file
  std::int64_t header_bytes = 0;  ///< of the array, before its elements
};

namespace {

namespace fs = std::filesystem;

constexpr std::size_t npz_piece = std::size_t{1} << 16;  // bytes that are read at once
constexpr std::int64_t max_text_bytes = std::int64_t{1} << 20;
constexpr std::string_view extension = ".npy";

std::string read_text(FileDescriptor const& file, fs::path const& path, std::int64_t offset, std::int64_t bytes) {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  text.resize(read_at(file, path, offset, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}));
  return text;
}

/// Inflates, as zlib's stream does.
class Inflation {
 public:
  Inflation() {
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) {
      throw Error("zlib could not be initialised");
    }
  }
  ~Inflation() { inflateEnd(&stream_); }
  Inflation(Inflation const&) = delete;
  Inflation& operator=(Inflation const&) = delete;

  /// Passes on what `input` gives. Returns false for bytes that are not deflated.
  bool add(std::span<std::uint8_t> input, std::function<void(std::span<std::uint8_t const>)> const& take) {
    stream_.next_in = input.data();
    stream_.avail_in = static_cast<uInt>(input.size());
    std::vector<std::uint8_t> output(npz_piece);
    int code = Z_OK;
    do {
      stream_.next_out = output.data();
      stream_.avail_out = static_cast<uInt>(output.size());
      code = inflate(&stream_, Z_NO_FLUSH);
      take(std::span(output).first(output.size() - stream_.avail_out));
    } while (code == Z_OK && (stream_.avail_in > 0 || stream_.avail_out == 0));
    return code == Z_STREAM_END || code == Z_OK || (code == Z_BUF_ERROR && stream_.avail_in == 0);
  }

 private:
  z_stream stream_{};
};

/// Passes on the bytes of a file in the archive, in pieces. Throws DataError unless they are those that it states.
void read_member(FileDescriptor const& file, std::string const& where, ZipRecord const& record, std::int64_t begin,
                 std::function<void(std::span<std::uint8_t const>)> const& take) {
  Inflation inflation;
  std::vector<std::uint8_t> piece(std::min(npz_piece, static_cast<std::size_t>(record.stored_bytes)));
  uLong checksum = crc32(0, nullptr, 0);
  std::int64_t bytes = 0;
  bool good = true;
  auto const count = [&](std::span<std::uint8_t const> part) {
    bytes += std::ssize(part);
    if (bytes <= record.bytes) {  // else more than it states: an error below
      checksum = crc32(checksum, part.data(), static_cast<uInt>(part.size()));
      take(part);
    }
  };
  for (std::int64_t done = 0; good && done < record.stored_bytes && bytes <= record.bytes;) {
    auto const part = std::span(piece).first(
        static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(piece), record.stored_bytes - done)));
    good = read_at(file, where, begin + done, part) == part.size();
    if (good && record.deflated) {
      good = inflation.add(part, count);
    } else if (good) {
      count(part);
    }
    done += std::ssize(part);
  }
  if (!good || bytes != record.bytes || checksum != record.checksum) {
    throw DataError("{}: its file {} does not have the length and the checksum that its directory states", where,
                    json_quoted(record.name));
  }
}

/// Throws DataError where two files of the archive share bytes.
void refuse_overlaps(std::vector<IndexRange> places, std::string const& where) {
  std::ranges::sort(places, {}, &IndexRange::begin);
  for (std::size_t index = 1; index < places.size(); ++index) {
    if (places[index].begin < places[index - 1].end) {
      throw DataError(where + ": files in it overlap");
    }
  }
}

}  // namespace

NpzFile::NpzFile(fs::path path)
    : path_(std::move(path)), file_(std::make_shared<FileDescriptor const>(open_regular(path_))) {}

NpzFile NpzFile::open(fs::path const& path) {
  NpzFile npz(path);
  std::string const where = path.string();
  struct stat status {};
  if (::fstat(npz.file_->get(), &status) != 0) {
    throw DataError(where + ": cannot be read: " + std::strerror(errno));
  }
  std::int64_t const end_bytes = std::min<std::int64_t>(status.st_size, zip_end_bytes);
  ZipDirectory const place =
      find_zip_directory(read_text(*npz.file_, path, status.st_size - end_bytes, end_bytes), status.st_size, where);
  std::vector<ZipRecord> const records =
      parse_zip_directory(read_text(*npz.file_, path, place.begin, place.bytes), place.count, where);
  std::vector<IndexRange> places;
  for (ZipRecord const& record : records) {
    std::string const header = read_text(*npz.file_, path, record.offset, zip_local_bytes + std::ssize(record.name));
    std::int64_t const begin = record.offset + zip_local_header_bytes(header, record, where);
    places.push_back({record.offset, begin + record.stored_bytes});
    if (places.back().end > place.begin) {
      throw DataError("{}: its file {} has bytes of the directory", where, json_quoted(record.name));
    }
  }
  refuse_overlaps(places, where);  // before anything is inflated: files that share bytes could be many
  for (std::size_t index = 0; index < records.size(); ++index) {
    npz.add(records[index], places[index].end - records[index].stored_bytes);
  }
  return npz;
}

void NpzFile::add(ZipRecord const& record, std::int64_t begin) {
  std::string const where = path_.string();
  std::string const name = record.name.substr(0, record.name.size() - std::min(extension.size(), record.name.size()));
  if (!record.name.ends_with(extension) || name.empty() || tensors_.contains(name)) {
    throw DataError("{}: {} is not a .npy array, or its name occurs twice", where, json_quoted(record.name));
  }
  std::string head;
  read_member(*file_, where, record, begin, [&](std::span<std::uint8_t const> bytes) {
    head.append(bytes.begin(), bytes.begin() + std::min(std::ssize(bytes), max_npy_header_bytes - std::ssize(head)));
  });
  NpyHeader const array = parse_npy_header(head, record.bytes, fmt::format("{}: {}", where, json_quoted(record.name)));
  tensors_.emplace(name, array.tensor);
  members_.emplace(name, std::make_shared<Member const>(Member{record, begin, array.bytes}));
}

void NpzFile::read_bytes(std::string const& name, std::int64_t offset, std::span<std::uint8_t> into) const {
  Member const& member = *members_.at(name);
  offset += member.header_bytes;
  if (!member.record.deflated) {
    if (read_at(*file_, path_, member.begin + offset, into) < into.size()) {
      throw DataError(path_.string() + ": was truncated while it was read");
    }
    return;
  }
  if (inflated_name_ != name) {
    inflated_name_.clear();
    inflated_.clear();
    read_member(*file_, path_.string(), member.record, member.begin, [&](std::span<std::uint8_t const> bytes) {
      inflated_.insert(inflated_.end(), bytes.begin(), bytes.end());
    });
    inflated_name_ = name;
  }
  std::copy_n(inflated_.begin() + offset, into.size(), into.begin());
}

void NpzFile::read(std::string const& name, IndexRange const& elements, std::span<float> into) const {
  auto const found = tensors_.find(name);
  if (found == tensors_.end() || elements.begin < 0 || elements.count() != std::ssize(into) ||
      elements.end > found->second.elements()) {
    throw Error("elements {} to {} of an array {} in {}, which does not have them", elements.begin, elements.end,
                json_quoted(name), path_.string());
  }
  if (found->second.dtype != "float32") {
    throw DataError("{}: the array {} is of dtype {}; float32 is read", path_.string(), json_quoted(name),
                    found->second.dtype);
  }
  read_bytes(name, elements.begin * std::int64_t{sizeof(float)},
             {reinterpret_cast<std::uint8_t*>(into.data()), into.size_bytes()});
  auto const bad = std::find_if_not(into.begin(), into.end(), [](float value) { return std::isfinite(value); });
  if (bad != into.end()) {
    throw DataError("{}: the array {} has {} at element {}", path_.string(), json_quoted(name), *bad,
                    elements.begin + (bad - into.begin()));
  }
}

std::string NpzFile::bytes(std::string const& name) const {
  auto const found = members_.find(name);
  std::int64_t const count = found == members_.end() ? -1 : found->second->record.bytes - found->second->header_bytes;
  if (count < 0 || count > max_text_bytes) {
    throw DataError("{}: {} {}", path_.string(), count < 0 ? "there is no array" : "more than 1 MiB are in the array",
                    json_quoted(name));
  }
  std::string text(static_cast<std::size_t>(count), '\0');
  read_bytes(name, 0, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  return text;
}

struct NpzWriter::State {
  explicit State(fs::path const& path) : pending(path), file(pending.create()) {}

  void write(std::span<std::uint8_t const> bytes) {
    write_at(file, pending.target(), offset, bytes);
    offset += std::ssize(bytes);
  }
  void write(std::string const& text) { write({reinterpret_cast<std::uint8_t const*>(text.data()), text.size()}); }
  /// Writes the checksum of the array that is complete into its local header.
  void complete() {
    if (missing != 0) {
      throw Error("{}: {} bytes of an array are missing", pending.target().string(), missing);
    }
    if (!records.empty()) {
      std::string const header = zip_local_header(records.back());
      write_at(file, pending.target(), records.back().offset,
               {reinterpret_cast<std::uint8_t const*>(header.data()), header.size()});
    }
  }

  PendingFile pending;
  FileDescriptor file;
  std::int64_t offset = 0;
  std::int64_t missing = 0;  ///< bytes of the array that is written
  std::vector<ZipRecord> records;
};

NpzWriter::NpzWriter(fs::path const& path) : state_(std::make_unique<State>(path)) {}
NpzWriter::~NpzWriter() = default;

void NpzWriter::begin(std::string const& name, std::string_view type, std::vector<std::int64_t> const& shape) {
  state_->complete();
  std::string const header = npy_header(type, shape);
  std::int64_t const elements = ForeignTensor{shape, ""}.elements() * (type.back() - '0');
  std::int64_t const bytes = std::ssize(header) + elements;
  state_->records.push_back({name + std::string(extension), false, 0, bytes, bytes, state_->offset});
  if (state_->offset + bytes > std::numeric_limits<std::int32_t>::max()) {
    throw DataError("{}: the file would be longer than 2 GiB, which Marian does not read",
                    state_->pending.target().string());
  }
  state_->write(zip_local_header(state_->records.back()));
  state_->missing = bytes;
  write({reinterpret_cast<std::uint8_t const*>(header.data()), header.size()});
}

void NpzWriter::write(std::span<std::uint8_t const> bytes) {
  if (bytes.empty()) {
    return;  // zlib begins a new checksum where there are no bytes
  }
  state_->missing -= std::ssize(bytes);
  if (state_->missing < 0) {
    throw Error("{}: more bytes than its array has", state_->pending.target().string());
  }
  std::uint32_t& checksum = state_->records.back().checksum;
  checksum = static_cast<std::uint32_t>(crc32(checksum, bytes.data(), static_cast<uInt>(bytes.size())));
  state_->write(bytes);
}

void NpzWriter::finish() {
  State& state = *state_;
  state.complete();
  ZipDirectory place{state.offset, 0, std::ssize(state.records)};
  for (ZipRecord const& record : state.records) {
    state.write(zip_directory_record(record));
  }
  place.bytes = state.offset - place.begin;
  state.write(zip_end(place));
  state.pending.sync();
  if (!state.file.close()) {
    fail_with_errno(state.pending.target(), "close the file");
  }
  state.pending.commit();
}

}  // namespace heddle
