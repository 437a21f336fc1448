#pragma once

#include <filesystem>
#include <heddle/io/formats/foreign_tensors.hpp>
#include <memory>
#include <string_view>

namespace heddle {

class FileDescriptor;
struct ZipRecord;

/// The arrays of a .npz file of NumPy, as Marian writes it: a zip archive of .npy files, stored or deflated. Opening
/// reads the whole file once: lengths, places and checksums are checked, and nothing is extracted.
class NpzFile final : public ForeignTensors {
 public:
  /// Throws DataError for all that is not such a file: records that are truncated, overlap or have another checksum, an
  /// array of another length than its shape gives, encryption, Zip64, and the order of Fortran; and for a large array
  /// that is deflated to less than a hundredth, or to any length from 1 GiB on: no small file takes much time or
  /// memory.
  static NpzFile open(std::filesystem::path const& path);

  std::filesystem::path const& path() const { return path_; }

  /// An array that is not of float32 has NumPy's name of its dtype ("|i1"), and reading its elements throws DataError.
  std::map<std::string, ForeignTensor> const& tensors() const override { return tensors_; }
  /// A deflated array is then in memory as a whole, until another one is read.
  void read(std::string const& name, IndexRange const& elements, std::span<float> into) const override;
  /// All bytes of an array; Marian has texts in arrays of int8. Throws DataError if there is no such array, or it has
  /// more than 1 MiB.
  std::string bytes(std::string const& name) const;

 private:
  struct Member;

  explicit NpzFile(std::filesystem::path path);
  /// Checks a file of the archive, whose stored bytes begin there.
  void add(ZipRecord const& record, std::int64_t begin);
  void read_bytes(std::string const& name, std::int64_t offset, std::span<std::uint8_t> into) const;

  std::filesystem::path path_;
  std::shared_ptr<FileDescriptor const> file_;
  std::map<std::string, ForeignTensor> tensors_;
  std::map<std::string, std::shared_ptr<Member const>> members_;
  mutable std::string inflated_name_;
  mutable std::vector<std::uint8_t> inflated_;
};

/// Writes a .npz file with stored arrays, which appears under its name in finish().
class NpzWriter {
 public:
  explicit NpzWriter(std::filesystem::path const& path);
  ~NpzWriter();
  NpzWriter(NpzWriter const&) = delete;
  NpzWriter& operator=(NpzWriter const&) = delete;

  /// Begins an array; `type` is NumPy's: "<f4", "|i1". Throws Error unless the array before is complete, DataError
  /// where the file would be longer than 2 GiB, which not all readers have.
  void begin(std::string const& name, std::string_view type, std::vector<std::int64_t> const& shape);
  /// The array's next bytes. Throws Error if there are more than it has or the disk is full.
  void write(std::span<std::uint8_t const> bytes);
  /// Throws Error if bytes are missing or the file cannot be written whole.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle
