#pragma once

#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// The HDF5 files with tensors inside a checkpoint directory; docs/checkpoint-format.md describes them.
namespace heddle {

/// Writes, or throws DataError unless it has, the attributes of every HDF5 file of a checkpoint: format and version.
void set_checkpoint_format(hdf5::File& file);
void check_checkpoint_format(hdf5::File const& file);

/// "tensors-00000.h5"
std::string tensor_file_name(std::size_t number);

char const* part_name(TensorPart part);

/// Finds numbers that no training leaves in a part of a tensor: "numbers that are not finite", "negative numbers" (of
/// second moments), or "" if all numbers may be kept.
std::string refused_numbers(std::span<float const> numbers, TensorPart part);

/// One part of a tensor in a file.
struct TensorExtent {
  std::size_t tensor;
  TensorPart part;
  std::int64_t offset;
  std::int64_t elements;
};

/// A file before its tensors are written.
struct TensorFile {
  std::shared_ptr<hdf5::FileImage> image;  ///< all of its bytes except the tensors'
  std::vector<TensorExtent> extents;       ///< by ascending offset; tensors without elements are left out
};

struct TensorFiles {
  std::vector<TensorFile> files;
  std::vector<TensorInfo> tensors;
};

/// Throws Error for names and shapes that cannot be written.
void check_tensors(std::vector<TensorInfo> const& tensors);

/// The division of tensors among at most `writers` files of about equal size: a pure function, so that all ranks
/// compute the same. Throws as check_tensors does.
TensorFiles plan_tensor_files(std::vector<StreamedTensor> const& tensors, std::int64_t writers);

/// Throws DataError unless the HDF5 file in `bytes` has the tensors that the index places in file `number`, and no
/// others, at their offsets.
void check_tensor_file(std::shared_ptr<hdf5::ByteStore> bytes, std::string const& path,
                       std::vector<TensorInfo> const& tensors, std::size_t number);

}  // namespace heddle
