// SPDX-License-Identifier: Apache-2.0
// Stands for the readers of image formats whose library was not there when Lockstep was built.
#include "datasets/image.h"

#include "core/base/log.h"

#ifndef LS_HAVE_JPEG
enum ls_status ls_jpeg_read(const struct ls_image_file *file, int64_t channels,
                            struct ls_image *out)
{
    (void)channels, (void)out;
    ls_error(file->scope,
             "%s: is a JPEG image, and this Lockstep was built without libjpeg; install it "
             "(Debian: libjpeg62-turbo-dev) and build again",
             file->name);
    return LS_UNAVAILABLE;
}
#endif

#ifndef LS_HAVE_PNG
enum ls_status ls_png_read(const struct ls_image_file *file, int64_t channels, struct ls_image *out)
{
    (void)channels, (void)out;
    ls_error(file->scope,
             "%s: is a PNG image, and this Lockstep was built without libpng; install it (Debian: "
             "libpng-dev) and build again",
             file->name);
    return LS_UNAVAILABLE;
}
#endif
