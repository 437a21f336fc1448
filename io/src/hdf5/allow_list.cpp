#include <heddle/io/hdf5/hdf5.hpp>

#include "internal.hpp"

// A crafted HDF5 file can name other files (external storage, external links, virtual datasets), ask for plug-ins
// (filters) or promise extents that it does not hold. Heddle's files need none of that, so everything outside this
// list is refused before a single element is read:
//   - links: hard ones only; objects: groups and datasets, nested at most eight deep, at most a million;
//   - element types: those of ElementType, little-endian; rank 1 to 8;
//   - layouts: contiguous, chunked or compact, every byte of them present in this very file;
//   - filters: none, so that a small file cannot become large in memory.

namespace heddle::hdf5 {

namespace {

constexpr int deepest_nesting = 8;
constexpr int highest_rank = 8;
constexpr std::int64_t largest_chunk_bytes = std::int64_t{256} << 20;

struct Walk {
  std::string path;
  std::int64_t file_bytes = 0;
  std::int64_t objects = 0;
};

struct ChunkStorage {
  std::int64_t element_size;
  std::int64_t stored_bytes;
};

void check_chunks(hid_t dataset, hid_t space, hid_t creation, Extents const& shape, ChunkStorage const& storage,
                  std::string const& where) {
  std::vector<hsize_t> chunk(shape.size());
  int const rank = require(H5Pget_chunk(creation, highest_rank, chunk.data()), where, "read its chunks' extents");
  if (rank != static_cast<int>(shape.size())) {
    throw DataError(where + ": its chunks have another rank than itself");
  }
  std::int64_t expected_chunks = 1;
  std::int64_t chunk_bytes = storage.element_size;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    auto const extent = static_cast<std::int64_t>(chunk[axis]);
    if (extent <= 0 || extent > largest_chunk_bytes / chunk_bytes) {
      throw DataError(where + ": its chunks are larger than 256 MiB");
    }
    chunk_bytes *= extent;
    expected_chunks *= (shape[axis] + extent - 1) / extent;
  }
  hsize_t chunks = 0;
  require(H5Dget_num_chunks(dataset, space, &chunks), where, "count its chunks");
  // HDF5 would read an absent chunk as zeros, without any error.
  if (static_cast<std::int64_t>(chunks) != expected_chunks) {
    throw DataError(where + ": has " + std::to_string(chunks) + " of its " + std::to_string(expected_chunks) +
                    " chunks; it was not written to its end");
  }
  if (expected_chunks > 0 && chunk_bytes > storage.stored_bytes / expected_chunks) {
    throw DataError(where + ": its chunks hold " + std::to_string(storage.stored_bytes) +
                    " bytes, too few for its extents " + to_string(shape));
  }
}

void check_dataset(hid_t dataset, Walk const& walk, std::string const& where) {
  // Check the layout first: only then is anything read that may reach into other files.
  Handle creation(require(H5Dget_create_plist(dataset), where, "read its creation properties"), H5Pclose);
  H5D_layout_t const layout = H5Pget_layout(creation.id());
  if (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED && layout != H5D_COMPACT) {
    throw DataError(where + ": is a virtual dataset (or of an unknown layout), which is not read");
  }
  if (require(H5Pget_external_count(creation.id()), where, "read its storage") != 0) {
    throw DataError(where + ": keeps its data in another file (external storage), which is not read");
  }
  if (require(H5Pget_nfilters(creation.id()), where, "read its filters") > 0) {
    throw DataError(where + ": is compressed or otherwise filtered, which is not read; write it without filters");
  }
  Handle type(require(H5Dget_type(dataset), where, "read its type"), H5Tclose);
  ElementType const element = element_type_of_stored(type.id(), where);
  Handle space(require(H5Dget_space(dataset), where, "read its extents"), H5Sclose);
  Extents const shape = shape_of_space(space.id(), where);
  if (shape.size() > highest_rank) {
    throw DataError(where + ": has more than 8 dimensions");
  }
  std::int64_t bytes = element_bytes(element);
  for (std::int64_t extent : shape) {
    bytes *= extent;  // shape_of_space has refused shapes that overflow
  }
  auto const stored = static_cast<std::int64_t>(H5Dget_storage_size(dataset));
  if (stored < 0 || stored > walk.file_bytes) {
    throw DataError(where + ": claims more bytes than the file has");
  }
  if (layout == H5D_CHUNKED) {
    check_chunks(dataset, space.id(), creation.id(), shape, {element_bytes(element), stored}, where);
  } else if (stored != bytes) {
    throw DataError(where + ": its extents " + to_string(shape) + " need " + std::to_string(bytes) +
                    " bytes, the file holds " + std::to_string(stored) + " of them");
  }
  if (layout == H5D_CONTIGUOUS && bytes > 0) {
    haddr_t const offset = H5Dget_offset(dataset);
    if (offset == HADDR_UNDEF || offset > static_cast<haddr_t>(walk.file_bytes - bytes)) {
      throw DataError(where + ": its data would extend past the end of the file");
    }
  }
}

void check_group(hid_t group, std::string const& name, int depth, Walk& walk) {
  std::string const where = walk.path + ": " + name;
  if (depth > deepest_nesting) {
    throw DataError(where + ": groups are nested more than 8 deep (or in a circle)");
  }
  for (Link const& link : links_of(group, where)) {
    std::string const child = (depth == 0 ? "/" : name + "/") + link.name;
    std::string const place = walk.path + ": " + child;
    if (link.type != H5L_TYPE_HARD) {
      throw DataError(place + ": is a soft or external link; only hard links are followed");
    }
    if (++walk.objects > max_objects) {
      throw DataError(walk.path + ": holds more than a million objects");
    }
    Handle object(require(H5Oopen(group, link.name.c_str(), H5P_DEFAULT), place, "open it"), H5Oclose);
    H5I_type_t const kind = H5Iget_type(object.id());
    if (kind == H5I_DATASET) {
      check_dataset(object.id(), walk, place);
    } else if (kind == H5I_GROUP) {
      check_group(object.id(), child, depth + 1, walk);
    } else {
      throw DataError(place + ": is neither a group nor a dataset");
    }
  }
}

}  // namespace

void check_allow_list(hid_t file, std::string const& path, std::int64_t file_bytes) {
  Walk walk{path, file_bytes, 0};
  Handle root(require(H5Gopen2(file, "/", H5P_DEFAULT), path, "open the root group"), H5Gclose);
  check_group(root.id(), "/", 0, walk);
}

}  // namespace heddle::hdf5
